//! The field of the integers modulo the Mersenne prime 2^61 - 1.
//!
//! Sums, differences and products take the same time whatever the numbers are: masks stand where branches would.

use std::ops::{Add, Mul, Neg, Sub};

use zeroize::Zeroize;

/// The number of bits of an element.
const BITS: u32 = 61;
/// The size of the field.
pub(super) const PRIME: u64 = (1 << BITS) - 1;

/// A number below [`PRIME`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Zeroize)]
pub(super) struct Element(u64);

impl Element {
    pub(super) const ZERO: Self = Self(0);
    pub(super) const ONE: Self = Self(1);

    /// The element with this number; `None` from [`PRIME`] on.
    pub(super) fn new(number: u64) -> Option<Self> {
        (number < PRIME).then_some(Self(number))
    }

    /// The element of 61 random bits; `None` for the one pattern that is no element, so that all are equally likely.
    pub(super) fn from_random_bits(bits: u64) -> Option<Self> {
        Self::new(bits & PRIME)
    }

    pub(super) fn number(self) -> u64 {
        self.0
    }

    /// The element of a number up to `2 * PRIME - 1`.
    fn reduced(number: u64) -> Self {
        let less = number.wrapping_sub(PRIME);
        let was_less = (less as i64 >> 63) as u64; // all ones if the subtraction went below zero, otherwise all zeros
        Self(less.wrapping_add(was_less & PRIME))
    }

    /// `1 / self`, by Fermat; zero for zero.
    pub(super) fn inverse(self) -> Self {
        let exponent = PRIME - 2;
        let bits = (0..BITS).rev().map(|bit| exponent >> bit & 1 == 1);
        bits.fold(Self::ONE, |power, bit| if bit { power * power * self } else { power * power })
    }
}

impl From<u32> for Element {
    fn from(number: u32) -> Self {
        Self(number.into())
    }
}

impl Add for Element {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self::reduced(self.0 + other.0)
    }
}

impl Sub for Element {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self::reduced(self.0 + (PRIME - other.0))
    }
}

impl Neg for Element {
    type Output = Self;

    fn neg(self) -> Self {
        Self::ZERO - self
    }
}

impl Mul for Element {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        let product = u128::from(self.0) * u128::from(other.0);
        Self::reduced(folded(product)) // a product of two elements has both its parts below the prime
    }
}

/// A number congruent to the given one: as 2^61 = 1, its upper part may be added to its lower 61 bits.
fn folded(number: u128) -> u64 {
    (number as u64 & PRIME) + (number >> BITS) as u64
}

/// A sum of the form `(..(c_n x + c_{n-1}) x + ..) x + c_0` in the making, x being small.
///
/// It is reduced only once, at the end: until then it stays below 2^61 + 2^33, for x and what is added are bounded.
#[derive(Clone, Copy, Default)]
pub(super) struct Horner(u64);

impl Horner {
    pub(super) fn step(self, x: u32, coefficient: Element) -> Self {
        Self(folded(u128::from(self.0) * u128::from(x) + u128::from(coefficient.0)))
    }

    pub(super) fn end(self) -> Element {
        Element::reduced(self.0)
    }
}

/// Puts the inverse in the place of each of many elements, none of them zero, at the price of one inversion.
pub(super) fn invert_all(elements: &mut [Element]) {
    let before: Vec<Element> = elements
        .iter()
        .scan(Element::ONE, |product, &e| {
            let before = *product;
            *product = before * e;
            Some(before)
        })
        .collect();
    let product = elements.iter().fold(Element::ONE, |product, &e| product * e);
    let mut inverse = product.inverse(); // of the product of this element and all before it
    for (element, before) in elements.iter_mut().zip(before).rev() {
        (*element, inverse) = (inverse * before, inverse * *element);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const P: u128 = PRIME as u128;

    fn of(number: u64) -> Element {
        Element::new(number).unwrap()
    }

    /// Numbers of the field, its ends and the powers of two more often than their share.
    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![0..PRIME, 0..4u64, PRIME - 4..PRIME, (0..BITS).prop_map(|b| 1 << b)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn operations_are_those_of_integers_modulo_the_prime(a in number(), b in number()) {
            let (x, y) = (u128::from(a), u128::from(b));
            prop_assert_eq!(u128::from((of(a) + of(b)).number()), (x + y) % P);
            prop_assert_eq!(u128::from((of(a) - of(b)).number()), (x + P - y) % P);
            prop_assert_eq!(u128::from((of(a) * of(b)).number()), x * y % P);
            prop_assert_eq!(u128::from((-of(a)).number()), (P - x) % P);
        }

        #[test]
        fn the_axioms_hold(a in number(), b in number(), c in number()) {
            let (a, b, c) = (of(a), of(b), of(c));
            prop_assert!((a + b) + c == a + (b + c));
            prop_assert!((a * b) * c == a * (b * c));
            prop_assert!(a * (b + c) == a * b + a * c);
            prop_assert!(a - b == -(b - a));
            prop_assert!(a == Element::ZERO || a * a.inverse() == Element::ONE);
        }

        #[test]
        fn horner_is_the_plain_sum(
            coefficients in prop::collection::vec(number(), 0..20), x in prop_oneof![any::<u32>(), Just(u32::MAX)]
        ) {
            let fast = coefficients.iter().fold(Horner::default(), |sum, &c| sum.step(x, of(c))).end();
            let plain = coefficients.iter().fold(0, |sum, &c| (sum * u128::from(x) + u128::from(c)) % P);
            prop_assert_eq!(u128::from(fast.number()), plain);
        }

        #[test]
        fn inverses_of_many_are_those_of_each(numbers in prop::collection::vec(1..PRIME, 0..30)) {
            let mut many: Vec<Element> = numbers.iter().map(|&n| of(n)).collect();
            invert_all(&mut many);
            prop_assert!(many.iter().zip(&numbers).all(|(&i, &n)| i == of(n).inverse()));
        }
    }

    #[test]
    fn horner_stays_in_bounds_at_the_largest_numbers() {
        let largest = (0..1000).fold(Horner::default(), |sum, _| sum.step(u32::MAX, of(PRIME - 1)));
        assert!(largest.0 < (1 << 61) + (1 << 33));
    }

    #[test]
    fn only_numbers_below_the_prime_are_elements() {
        assert!(Element::new(PRIME - 1).is_some());
        assert!([PRIME, PRIME + 1, u64::MAX].into_iter().all(|n| Element::new(n).is_none()));
        assert!(Element::from_random_bits(u64::MAX).is_none());
        assert!(Element::from_random_bits(u64::MAX - 1) == Element::new(PRIME - 1));
        assert!(Element::from_random_bits(1 << 61) == Some(Element::ZERO));
    }
}
