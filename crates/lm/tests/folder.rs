//! Folders come back as they were written, and every kind of damage has its own message.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::io::{ErrorKind, Read};

use keyhush_lm::{
    folder::{Files, Folder, FolderError, Guarantee, Source, Weights},
    kernels::KernelPath,
    language_model::LanguageModel,
    model::{
        config::{Cell, ModelConfig},
        parameters::ParameterLayout,
    },
    ngram::KneserNey,
    tensors::TensorsError,
    tokenizer::Rules,
    vocabulary::Vocabulary,
};
use serde_json::{Value, json};

const HEAD: &str = "8:6f2556ae5996c3053f56935af166aa6c888f09c08dba047534c7ab2683a5aa67";

fn vocabulary(words: usize) -> Vocabulary {
    Vocabulary::new((0..words).map(|i| format!("word{i}"))).unwrap()
}

fn private() -> Guarantee {
    Guarantee::Private {
        epsilon: "1.7163".into(),
        delta: "1e-10".into(),
        protects: "each device".into(),
        statement: "One device: all the text on it.\n".into(),
        ledger_head: HEAD.into(),
    }
}

fn recurrent(config: ModelConfig) -> Folder {
    let len = ParameterLayout::new(&config).unwrap().len();
    let values = (0..len).map(|i| ((i * 37 % 101) as f32 - 50.0) / 300.0).collect();
    Folder {
        name: "A test".into(),
        rules: Rules::Words1,
        vocabulary: vocabulary(config.vocabulary - 3),
        weights: Weights::Recurrent { config, values },
        guarantee: private(),
    }
}

fn small() -> Folder {
    let config = ModelConfig::preset("tiny").unwrap().with_vocabulary(7);
    recurrent(ModelConfig { hidden: 4, embedding: 3, dense: Some(3), ..config })
}

fn ngrams() -> Folder {
    let text: Vec<Vec<u32>> = (0..30u32).map(|i| vec![0, 3 + i % 4, 3 + i * i % 4, 2, 1]).collect();
    let model = KneserNey::train(3, 7, text.iter().map(Vec::as_slice)).unwrap();
    Folder { weights: Weights::Ngrams(model), guarantee: Guarantee::public_text(), ..small() }
}

fn read(files: &Files) -> Result<Folder, FolderError> {
    let Files { weights, config, vocabulary, card } = files;
    Folder::read(Source { weights: &mut weights.as_slice(), config, vocabulary, card })
}

fn refused(files: &Files) -> String {
    read(files).unwrap_err().to_string()
}

/// The header of the parameters' file and the bytes after it.
fn taken_apart(weights: &[u8]) -> (Value, Vec<u8>) {
    let len = u64::from_le_bytes(weights[..8].try_into().unwrap()) as usize;
    (serde_json::from_slice(&weights[8..8 + len]).unwrap(), weights[8 + len..].to_vec())
}

fn put_together(header: &Value, data: &[u8]) -> Vec<u8> {
    let header = header.to_string();
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

/// The same files with the header of the parameters changed.
fn with_header(files: &Files, change: impl Fn(&mut Value)) -> Files {
    let (mut header, data) = taken_apart(&files.weights);
    change(&mut header);
    Files { weights: put_together(&header, &data), ..files.clone() }
}

#[test]
fn models_come_back_to_the_bit() {
    for cell in [Cell::Lstm, Cell::Cifg, Cell::Gru] {
        let projection = (cell != Cell::Gru).then_some(3);
        let config = ModelConfig {
            cell,
            recurrent_projection: projection,
            dense: None,
            tied: false,
            output_bias: true,
            layers: 2,
            ..ModelConfig::preset("tiny").unwrap().with_vocabulary(9)
        };
        let folder = recurrent(config);
        let files = folder.write().unwrap();
        assert_eq!(folder.write().unwrap(), files, "the same model gives the same bytes");
        let again = read(&files).unwrap();
        assert_eq!((&again.name, again.rules, &again.guarantee), (&folder.name, folder.rules, &folder.guarantee));
        assert_eq!(again.vocabulary, folder.vocabulary);
        let (Weights::Recurrent { config: a, values: x }, Weights::Recurrent { config: b, values: y }) =
            (&again.weights, &folder.weights)
        else {
            panic!("a recurrent model came back as another")
        };
        assert_eq!((a, x), (b, y));
        assert_eq!(again.weights.into_model(KernelPath::best()).unwrap().after(&[0, 5]).unwrap().len(), 9);
    }
}

#[test]
fn ngrams_come_back_too() {
    let folder = ngrams();
    let Weights::Ngrams(model) = &folder.weights else { panic!("n-grams") };
    let files = folder.write().unwrap();
    let again = read(&files).unwrap();
    assert_eq!(again.guarantee, Guarantee::public_text());
    assert_eq!(again.weights.into_model(KernelPath::best()).unwrap().after(&[0, 5]), model.after(&[0, 5]));
}

#[test]
fn names_shapes_and_metadata_are_as_documented() {
    let files = small().write().unwrap();
    let (header, data) = taken_apart(&files.weights);
    assert_eq!(header["embedding"]["shape"], json!([7, 3]));
    assert_eq!(header["layers.0.forget_gate.bias"], json!({"dtype": "F32", "shape": [4], "data_offsets": [324, 340]}));
    assert_eq!(header["dense.kernel"]["shape"], json!([4, 3]));
    let said = &header["__metadata__"];
    assert_eq!(
        (said["ledger_head"].as_str(), said["epsilon"].as_str(), said["delta"].as_str()),
        (Some(HEAD), Some("1.7163"), Some("1e-10"))
    );
    assert_eq!((files.weights.len() - data.len()) % 8, 0, "tensors are aligned");
}

#[test]
fn the_card_says_what_is_guaranteed() {
    let card = small().write().unwrap().card;
    assert!(
        card.starts_with("---\nlibrary_name: keyhush\n")
            && card.contains("\n- differential-privacy\n---\n\n# A test\n")
    );
    assert!(card.contains("**(1.7163, 1e-10)-differentially private**") && card.contains(HEAD));
    assert!(card.contains("One device: all the text on it."));
    let card = ngrams().write().unwrap().card;
    assert!(card.contains("None: the model was trained on public text alone") && !card.contains("differential"));
    assert!(card.contains("interpolated Kneser-Ney model of order 3, 7 entries"));
}

#[test]
fn truncated_files_say_so() {
    for files in [small().write().unwrap(), ngrams().write().unwrap()] {
        let whole = files.weights.len();
        for len in 0..whole {
            let cut = Files { weights: files.weights[..len].to_vec(), ..files.clone() };
            match read(&cut).unwrap_err() {
                FolderError::Tensors(TensorsError::Truncated { got, want }) => {
                    assert!(got == len as u64 && want <= whole as u64 && got < want)
                }
                other => assert_eq!(len, 8, "cut to {len} bytes: {other}"),
            }
        }
        let longer = Files { weights: [&files.weights[..], &[0; 5]].concat(), ..files.clone() };
        assert_eq!(
            refused(&longer),
            format!("model.safetensors has {} bytes, but its tensors end after {whole}", whole + 5)
        );
    }
    let files = small().write().unwrap();
    let cut = Files { weights: files.weights[..files.weights.len() - 1].to_vec(), ..files.clone() };
    let (got, want) = (cut.weights.len(), files.weights.len());
    assert_eq!(refused(&cut), format!("model.safetensors is truncated: {got} bytes of {want}"));
    assert!(
        refused(&Files { weights: b"PK\x03\x04 something else".to_vec(), ..files })
            .contains("is not a safetensors file")
    );
}

#[test]
fn wrong_tensors_say_which() {
    let files = small().write().unwrap();
    let change = |change: &dyn Fn(&mut Value)| refused(&with_header(&files, change));
    assert_eq!(
        change(&|h| h["dense.kernel"]["shape"] = json!([3, 4])),
        "model.safetensors has a tensor \"dense.kernel\" of shape [3, 4], expected [4, 3]"
    );
    let rename = |h: &mut Value| {
        let tensor = h.as_object_mut().unwrap().remove("dense.bias").unwrap();
        h["dense.bias2"] = tensor;
    };
    assert_eq!(change(&rename), "model.safetensors has a tensor \"dense.bias2\" that the model does not have");
    assert_eq!(
        change(&|h| h["dense.bias"]["dtype"] = json!("I32")),
        "model.safetensors has a tensor \"dense.bias\" of type I32, expected F32"
    );
    assert!(change(&|h| h["dense.bias"]["shape"] = json!([4])).contains("is not a safetensors file"));
    let (mut header, data) = taken_apart(&files.weights);
    header.as_object_mut().unwrap().remove("dense.bias");
    let short = Files { weights: put_together(&header, &data[..data.len() - 12]), ..files.clone() };
    assert_eq!(refused(&short), "model.safetensors has no tensor \"dense.bias\"");
    for value in [f32::NAN, f32::INFINITY] {
        let mut weights = files.weights.clone();
        let end = weights.len();
        weights[end - 8..end - 4].copy_from_slice(&value.to_le_bytes());
        let error = refused(&Files { weights, ..files.clone() });
        assert_eq!(error, "tensor \"dense.bias\" has a value that is not finite, at index 1");
    }
    assert_eq!(
        change(&|h| drop(h.as_object_mut().unwrap().remove("__metadata__"))),
        "model.safetensors has no \"format\" in its metadata; it was not written by keyhush"
    );
}

#[test]
fn another_vocabulary_says_so() {
    let files = small().write().unwrap();
    let larger = Files { vocabulary: vocabulary(5).to_text(), ..files.clone() };
    assert_eq!(refused(&larger), "vocab.txt has 8 entries, but the model expects 7");
    let other = Files { vocabulary: files.vocabulary.replace("word1", "word9"), ..files.clone() };
    assert!(refused(&other).starts_with("vocab.txt is not the model's vocabulary: its SHA-256 is "));
    let broken = Files { vocabulary: "word1\n".into(), ..files };
    assert!(refused(&broken).starts_with("vocab.txt: line 1 must be"));
}

#[test]
fn another_configuration_or_card_says_so() {
    let files = small().write().unwrap();
    let config = |from: &str, to: &str| refused(&Files { config: files.config.replace(from, to), ..files.clone() });
    assert_eq!(
        config("keyhush-model-1", "keyhush-model-7"),
        "config.json: has format \"keyhush-model-7\", but this version reads \"keyhush-model-1\""
    );
    assert!(
        config("\"hidden\": 4", "\"hidden\": 5")
            .starts_with("model.safetensors has a tensor \"layers.0.input_gate.kernel\" of shape")
    );
    assert!(
        config("\"unit_norm\": false", "\"unit_norm\": true").starts_with("config.json does not belong to this model")
    );
    assert_eq!(config("\"hidden\": 4", "\"hidden\": 0"), "config.json: hidden must be from 1 to 65536, got 0");
    assert!(config("\"hidden\"", "\"hiden\"").starts_with("config.json: unknown field `hiden`"));
    assert!(config("{", "[").starts_with("config.json: "));
    let card = Files { card: "# Trust me".into(), ..files.clone() };
    assert_eq!(
        refused(&card),
        "README.md does not belong to this model: it does not contain \"# A test\\n\" from the model's metadata"
    );
    let card = Files { card: files.card.replace(HEAD, "7:00"), ..files.clone() };
    assert!(refused(&card).contains(&format!("it does not contain \"`{HEAD}`\"")));
    let card = Files { card: files.card.replace("1.7163", "0.1"), ..files.clone() };
    assert!(refused(&card).contains("it does not contain \"**(1.7163, 1e-10)-differentially private**"));
    let edited = Files { card: files.card.replace("## Files", "## Our own words"), ..files.clone() };
    assert!(read(&edited).is_ok(), "the rest of a card may be edited");
}

/// A write that is cut short leaves some files of one model and some of another. Whatever they are, what reads as a model is
/// one of the two.
#[test]
fn files_of_two_models_never_make_a_third() {
    let changed = |change: &dyn Fn(&mut Folder)| {
        let mut folder = small();
        change(&mut folder);
        folder
    };
    let others = [
        changed(&|f| f.vocabulary = Vocabulary::new(["other", "words", "of", "mine"]).unwrap()),
        changed(&|f| f.rules = Rules::Characters1),
        changed(&|f| f.name = "Another test".into()),
        changed(&|f| f.guarantee = Guarantee::public_text()),
        changed(&|f| {
            if let Guarantee::Private { ledger_head, .. } = &mut f.guarantee {
                *ledger_head = HEAD.replace('8', "9");
            }
        }),
        changed(&|f| {
            if let Weights::Recurrent { values, .. } = &mut f.weights {
                values[5] += 1.0;
            }
        }),
        ngrams(),
    ];
    for (n, other) in others.iter().enumerate() {
        let (ours, theirs) = (small().write().unwrap(), other.write().unwrap());
        assert_ne!(ours, theirs);
        for mixture in 0..16 {
            let from = |bit: u32| if mixture >> bit & 1 == 0 { &ours } else { &theirs };
            let mixed = Files {
                weights: from(0).weights.clone(),
                config: from(1).config.clone(),
                vocabulary: from(2).vocabulary.clone(),
                card: from(3).card.clone(),
            };
            if let Ok(folder) = read(&mixed) {
                let again = folder.write().unwrap();
                assert!(again == ours || again == theirs, "model {n}, mixture {mixture:04b}");
                assert!(mixed == ours || mixed == theirs, "model {n}, mixture {mixture:04b}");
            }
        }
    }
}

/// Python's `safetensors` writes tensors in an order of its own.
#[test]
fn tensors_may_come_in_any_order() {
    let files = small().write().unwrap();
    let (header, data) = taken_apart(&files.weights);
    let mut names: Vec<&String> = header.as_object().unwrap().keys().filter(|name| *name != "__metadata__").collect();
    names.sort_by(|a, b| b.cmp(a));
    let (mut turned, mut bytes) = (json!({ "__metadata__": header["__metadata__"] }), Vec::new());
    for name in names {
        let offset = |n: usize| header[name]["data_offsets"][n].as_u64().unwrap() as usize;
        let start = bytes.len();
        bytes.extend_from_slice(&data[offset(0)..offset(1)]);
        turned[name] = header[name].clone();
        turned[name]["data_offsets"] = json!([start, bytes.len()]);
    }
    assert_ne!(bytes, data);
    let again = read(&Files { weights: put_together(&turned, &bytes), ..files.clone() }).unwrap();
    assert_eq!(again.write().unwrap(), files);
}

/// A stream that gives little at a time, is interrupted, and fails in the end.
struct Broken<'a>(&'a [u8], usize);

impl Read for Broken<'_> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        self.1 += 1;
        match self.1 % 3 {
            0 => Err(ErrorKind::Interrupted.into()),
            _ if self.0.is_empty() => Err(std::io::Error::other("the disk is gone")),
            _ => (&mut self.0).take(7).read(to),
        }
    }
}

#[test]
fn a_stream_that_fails_says_so() {
    let Files { weights, config, vocabulary, card } = small().write().unwrap();
    for len in [5, 100, weights.len() - 1] {
        let mut broken = Broken(&weights[..len], 0);
        let source = Source { weights: &mut broken, config: &config, vocabulary: &vocabulary, card: &card };
        assert_eq!(
            Folder::read(source).unwrap_err(),
            FolderError::Tensors(TensorsError::Io("the disk is gone".into())),
            "{len}"
        );
    }
}

#[test]
fn what_does_not_fit_together_is_not_written() {
    let folder = Folder { vocabulary: vocabulary(9), ..small() };
    assert_eq!(folder.write().unwrap_err(), FolderError::VocabularySize { words: 12, model: 7 });
    let mut folder = small();
    if let Weights::Recurrent { values, .. } = &mut folder.weights {
        values[0] = f32::NAN;
    }
    assert_eq!(folder.write().unwrap_err(), FolderError::NotFinite { name: "embedding".into(), at: 0 });
    if let Weights::Recurrent { values, .. } = &mut folder.weights {
        values.pop();
    }
    assert!(matches!(folder.write().unwrap_err(), FolderError::Length { .. }));
}

/// Bytes changed anywhere are noticed or harmless; nothing panics.
#[test]
fn damage_anywhere_does_no_harm() {
    for files in [small().write().unwrap(), ngrams().write().unwrap()] {
        for at in 0..files.weights.len() {
            let mut damaged = files.clone();
            damaged.weights[at] ^= 0x51;
            if let Ok(folder) = read(&damaged) {
                folder.weights.into_model(KernelPath::best()).unwrap().after(&[0, 3]).unwrap();
            }
        }
    }
}
