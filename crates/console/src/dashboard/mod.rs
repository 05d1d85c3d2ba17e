//! The dashboard at `/`: the page, what it is told, and how it hears of changes.
//!
//! | module       | what it is                                                                                   |
//! |--------------|----------------------------------------------------------------------------------------------|
//! | `pages`      | the files of the page (`web/`), embedded in the program                                      |
//! | `told`       | what pages are told of a task, typed: the plan, releases, and what follows from these        |
//! | `operations` | exact counts and times, under one key that says so, for operators (rule P26)                 |
//! | `listing`    | all tasks twice, for viewers and for operators, with what changed since a version            |
//! | `watching`   | reads the state of tasks again when it changed                                               |
//! | `meanings`   | what each chart means, in a sentence                                                         |
//!
//! | request                                | answer                                                              |
//! |----------------------------------------|---------------------------------------------------------------------|
//! | `GET /api/dashboard`                   | all tasks: where each of them stands                                |
//! | `GET /api/events`                      | the same, then what changes, as server-sent events `tasks`          |
//! | `GET /api/dashboard/NAME`              | all that is released of one task                                    |
//! | `GET /api/dashboard/NAME/operations`   | what is exact, for operators                                        |
//! | `GET /api/dashboard/NAME/FILE`         | its statement or its ledger, to keep                                |
//!
//! The page itself is for everybody: it has no data. Each request for data has a token in its header, also that for events, which the page
//! reads by fetch: there is no cookie that another page could use.

mod listing;
mod meanings;
mod operations;
mod pages;
mod told;
mod watching;
