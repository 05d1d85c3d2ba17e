//! Keyboard language models: tokenizer, vocabulary, recurrent and n-gram models, keyboard metrics.
//!
//! | module         | what it is                                                              |
//! |----------------|-------------------------------------------------------------------------|
//! | [`tokenizer`]  | splits text into words or characters                                    |
//! | [`vocabulary`] | words to ids and back                                                   |
//! | [`stream`]     | text as sequences of ids: a line each, or one long stream                |
//! | [`model`]      | the papers' recurrent models: configuration, parameters, computation     |
//! | [`kernels`]    | portable vector code                                                    |
//! | [`language_model`] | the trait of all language models: how likely is each next token      |
//! | [`ngram`]      | interpolated Kneser-Ney n-grams, the baseline                           |
//! | [`mixture`]    | interpolates two models                                                 |
//! | [`metrics`]    | keyboard metrics                                                        |
//! | [`predict`]    | suggestions while a user types                                          |
//! | `rank`         | ranks a word among all predictions, and finds the best                  |
//! | [`typing`]     | simulates typing: how keys change text and suggestions                   |
//! | [`folder`]     | a model as a Hugging Face folder                                        |
//! | [`tensors`]    | reads and writes safetensors                                            |

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
