//! Exact norms of a user's integers, segment by segment, computed in the same pass that produces them.

use super::{layout::Layout, rounding::Size};

/// The sizes of the segments of a vector, as far as it has come.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    /// Where each segment ends, and how large what has come of it is.
    segments: Vec<(usize, Size)>,
    /// Integers that were measured.
    upto: usize,
}

impl Measured {
    /// Nothing yet, of a layout.
    pub(crate) fn nothing(layout: &Layout) -> Self {
        let mut end = 0;
        let segments = layout.segments().iter().map(|segment| {
            end += segment.len;
            (end, Size::default())
        });
        Self { segments: segments.collect(), upto: 0 }
    }

    /// A vector that is there.
    pub(crate) fn of(values: &[i32], layout: &Layout) -> Self {
        let mut measured = Self::nothing(layout);
        measured.go_on(values);
        measured
    }

    /// Measures those of a vector's integers that were not measured yet.
    pub(crate) fn go_on(&mut self, values: &[i32]) {
        for (end, size) in &mut self.segments {
            let here = self.upto..values.len().min(*end);
            if !here.is_empty() {
                self.upto = here.end;
                *size = size.and(Size::of(&values[here]));
            }
        }
    }

    /// The sizes of the segments, in their order.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = Size> + '_ {
        self.segments.iter().map(|(_, size)| *size)
    }

    /// How many integers were measured.
    pub(crate) const fn len(&self) -> usize {
        self.upto
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        encoding::{
            Encoding, EncodingError, VectorPlan,
            layout::{LayoutSegment, SegmentKind},
        },
        event::Adjacency,
        units::ClipNorm,
    };

    /// What was not measured has no size, and would keep every bound.
    #[test]
    fn integers_that_were_not_all_measured_are_not_taken() {
        let clip = ClipNorm::new(1.0).unwrap();
        let encoding = Encoding::new(VectorPlan::of_update(8, 12), clip, None, Adjacency::ZeroOut).unwrap();
        let huge = vec![i32::MAX; 8];
        for upto in [0, 7] {
            let mut measured = Measured::nothing(encoding.layout());
            measured.go_on(&vec![0; upto]);
            let refused = encoding.check(&huge, &measured);
            assert!(matches!(refused, Err(EncodingError::Length { .. })), "{upto} measured: {refused:?}");
        }
    }

    #[test]
    fn pieces_are_as_large_as_the_whole() {
        let segment = |len| LayoutSegment { kind: SegmentKind::Update, len, norm_squared: 0, largest: 0, sigma: 0 };
        let layout = Layout { segments: [300, 1, 0, 70].map(segment).to_vec() };
        let values: Vec<i32> = (0..371).map(|i| (i * 7919) % 1001 - 500).collect();
        let whole: Vec<Size> = Measured::of(&values, &layout).sizes().collect();
        let parts = [&values[..300], &values[300..301], &[][..], &values[301..]];
        assert_eq!(whole, parts.map(Size::of));
        for piece in [1, 2, 63, 64, 65, 299, 300, 301, 371] {
            let mut measured = Measured::nothing(&layout);
            for end in (piece..values.len()).step_by(piece).chain([values.len()]) {
                measured.go_on(&values[..end]);
            }
            assert_eq!((measured.len(), measured.sizes().collect()), (values.len(), whole.clone()), "{piece}");
        }
    }
}
