//! Keyboard language models: words to ids to loss to update, and the metrics of keyboards.
//!
//! | module         | what it is                                                              |
//! |----------------|-------------------------------------------------------------------------|
//! | [`tokenizer`]  | text to words or characters                                             |
//! | [`vocabulary`] | words to ids and back                                                   |
//! | [`stream`]     | text as sequences of ids: a line each, or one long stream                |
//! | [`model`]      | the papers' models: their parts, their parameters, how they are computed |
//! | [`kernels`]    | vector code, written once                                               |
//! | [`language_model`] | what every model can do: say how likely each next token is           |
//! | [`ngram`]      | interpolated Kneser-Ney, the baseline that the papers replaced          |
//! | [`mixture`]    | two models, interpolated                                                |
//! | [`metrics`]    | how keyboards are measured                                              |
//! | [`predict`]    | suggestions while somebody types                                        |
//! | `rank`         | where a word stands among all, and which come first                     |
//! | [`typing`]     | somebody typing: what keys do to text and suggestions                    |
//! | [`folder`]     | a model as files, in bytes                                              |
//! | [`tensors`]    | safetensors, as a stream                                                |

pub mod folder;
pub mod kernels;
pub mod language_model;
pub mod metrics;
pub mod mixture;
pub mod model;
pub mod ngram;
pub mod predict;
mod rank;
pub mod stream;
pub mod tensors;
pub mod tokenizer;
pub mod typing;
pub mod vocabulary;
