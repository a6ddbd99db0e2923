//! The smallest tool: a text in, a text out, and nothing else touched.

/// Greetings.
#[portcullis_guest::tools]
mod hello {
    /// Greet somebody by name.
    pub fn greet(name: String) -> String {
        format!("Hello, {name}!")
    }
}

#[cfg(test)]
mod tests {
    use super::hello::greet;

    #[test]
    fn it_greets_by_name() {
        assert_eq!(greet("Ada".to_owned()), "Hello, Ada!");
    }
}
