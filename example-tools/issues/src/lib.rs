//! Lists and opens issues of a code forge. It sends its requests as anybody, and the host adds the token.

/// Issues of the repositories of a forge.
#[portcullis_guest::tools]
mod issues {
    use portcullis_guest::credential;
    use portcullis_guest::http::{self, Request, Response};
    use serde::Deserialize;

    /// One issue.
    #[derive(Debug, PartialEq)]
    pub struct Issue {
        pub number: u32,
        pub title: String,
    }

    /// List the open issues of a repository, such as `owner/name`.
    pub fn list(repository: String) -> Result<Vec<Issue>, String> {
        let issues: Vec<Found> = answer(Request::get(url(&repository)?), Vec::new())?;
        Ok(issues.into_iter().map(Found::issue).collect())
    }

    /// Open an issue in a repository.
    pub fn open(repository: String, title: String, text: String) -> Result<Issue, String> {
        let body = serde_json::json!({ "title": title, "body": text }).to_string();
        let request = Request::post(url(&repository)?).header("content-type", "application/json");
        answer(request, body.into_bytes()).map(Found::issue)
    }

    /// An issue as the forge writes it; it says more than this.
    #[derive(Deserialize)]
    struct Found {
        number: u32,
        title: String,
    }

    impl Found {
        fn issue(self) -> Issue {
            Issue { number: self.number, title: self.title }
        }
    }

    /// The forge is the one that the host names, or GitHub.
    fn url(repository: &str) -> Result<String, String> {
        let is_name = |part: &str| {
            let is_plain = part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
            !part.is_empty() && is_plain && !part.starts_with('.')
        };
        match repository.split_once('/') {
            Some((owner, name)) if is_name(owner) && is_name(name) => {
                let forge = std::env::var("FORGE_URL").unwrap_or_else(|_| "https://api.github.com".to_owned());
                Ok(format!("{forge}/repos/{owner}/{name}/issues"))
            }
            _ => Err(format!("`{repository}` is no repository: it has the form owner/name")),
        }
    }

    fn answer<T: for<'de> Deserialize<'de>>(request: http::Builder, body: Vec<u8>) -> Result<T, String> {
        if !credential::usable("forge") {
            return Err("this host has no credential `forge` for this tool; its operator can add one".to_owned());
        }
        let request = request.header("accept", "application/json").body(body).map_err(|error| error.to_string())?;
        let response: Response<Vec<u8>> = http::send(request).map_err(|error| error.to_string())?;
        if !response.status().is_success() {
            return Err(format!("the forge answered {}", response.status()));
        }
        serde_json::from_slice(response.body()).map_err(|error| format!("the forge's answer cannot be read: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::issues::*;
    use portcullis_guest::testing::Host;

    const URL: &str = "https://api.github.com/repos/o/n/issues";

    #[test]
    fn issues_are_listed_with_the_hosts_credential() {
        let host = Host::new().credential("forge").answer("GET", URL, 200, r#"[{"number":7,"title":"It leaks"}]"#);
        let found = host.run(|| list("o/n".to_owned())).unwrap();
        assert_eq!(found, [Issue { number: 7, title: "It leaks".to_owned() }]);
        assert!(!host.requests()[0].headers().contains_key("authorization"), "that is the host's to add");
    }

    #[test]
    fn what_is_missing_is_said_before_anything_is_sent() {
        let host = Host::new();
        assert!(host.run(|| list("o/n".to_owned())).unwrap_err().contains("`forge`"));
        assert!(host.requests().is_empty());
        assert!(host.run(|| list("../n".to_owned())).unwrap_err().contains("owner/name"));
    }
}
