//! Keeps notes from call to call, and touches nothing else.

/// Notes by their titles.
#[portcullis_guest::tools]
mod notes {
    use portcullis_guest::state::{self, Error};

    /// How far a note reaches.
    pub enum Scope {
        /// This run.
        Run,
        /// All runs of this thread.
        Thread,
        /// All runs.
        Shared,
    }

    /// Write a note. What stood under the title before is gone.
    pub fn put(scope: Scope, title: String, text: String) -> Result<(), String> {
        state::set(reach(scope), &title, text).map_err(failed)
    }

    /// Read a note, if there is one.
    pub fn get(scope: Scope, title: String) -> Result<Option<String>, String> {
        let text = state::get(reach(scope), &title).map_err(failed)?;
        Ok(text.map(|text| String::from_utf8_lossy(&text).into_owned()))
    }

    /// Throw a note away.
    pub fn drop(scope: Scope, title: String) -> Result<(), String> {
        state::remove(reach(scope), &title).map_err(failed)
    }

    fn reach(scope: Scope) -> state::Scope {
        match scope {
            Scope::Run => state::Scope::Run,
            Scope::Thread => state::Scope::Thread,
            Scope::Shared => state::Scope::Shared,
        }
    }

    fn failed(error: Error) -> String {
        error.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::notes::*;
    use portcullis_guest::state;
    use portcullis_guest::testing::Host;

    #[test]
    fn a_note_is_there_until_it_is_thrown_away() {
        Host::new().state(state::Scope::Run).run(|| {
            assert_eq!(get(Scope::Run, "todo".to_owned()), Ok(None));
            assert_eq!(put(Scope::Run, "todo".to_owned(), "rest".to_owned()), Ok(()));
            assert_eq!(get(Scope::Run, "todo".to_owned()), Ok(Some("rest".to_owned())));
            assert_eq!(drop(Scope::Run, "todo".to_owned()), Ok(()));
            assert_eq!(get(Scope::Run, "todo".to_owned()), Ok(None));
        });
    }

    #[test]
    fn a_scope_that_was_not_granted_is_an_error_that_says_so() {
        let error = Host::new().run(|| put(Scope::Run, "todo".to_owned(), String::new())).unwrap_err();
        assert!(error.contains("not granted"), "{error}");
    }
}
