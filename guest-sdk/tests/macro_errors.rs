//! Each error of the macro is a case under `ui/`: the source, and what the compiler says to it.
//! After a change of a message, `TRYBUILD=overwrite cargo test` writes it anew, to be read again.

#[test]
fn errors_say_what_is_wrong_and_how_to_put_it_right() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
    cases.pass("tests/ui/pass/*.rs");
}
