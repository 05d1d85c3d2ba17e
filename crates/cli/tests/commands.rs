//! Whole commands: what is typed, what comes out, how it exits.

#[test]
fn commands_answer_as_written_down() {
    trycmd::TestCases::new().case("tests/cmd/*.trycmd");
}
