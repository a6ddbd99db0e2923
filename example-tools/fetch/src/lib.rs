//! Asks one web service, and no other.

/// The service at `https://api.example.com/`.
#[portcullis_guest::tools]
mod fetch {
    use portcullis_guest::http::{self, Request, Response};

    /// What the service answered.
    #[derive(Debug, PartialEq)]
    pub struct Answer {
        /// The HTTP status, for example 200.
        pub status: u16,
        pub body: String,
    }

    /// Get a resource.
    pub fn get(url: String) -> Result<Answer, String> {
        http::get(&url).map(answer).map_err(|error| error.to_string())
    }

    /// Post a text to a resource.
    pub fn post(url: String, body: String) -> Result<Answer, String> {
        let request = Request::post(url).header("content-type", "text/plain; charset=utf-8");
        let request = request.body(body.into_bytes()).map_err(|error| error.to_string())?;
        http::send(request).map(answer).map_err(|error| error.to_string())
    }

    fn answer(response: Response<Vec<u8>>) -> Answer {
        Answer { status: response.status().as_u16(), body: String::from_utf8_lossy(response.body()).into_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::fetch::*;
    use portcullis_guest::testing::Host;

    const URL: &str = "https://api.example.com/notes";

    #[test]
    fn an_answer_has_status_and_body() {
        let host = Host::new().answer("GET", URL, 404, "no notes");
        let answer = host.run(|| get(URL.to_owned())).unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (404, "no notes"));
    }

    #[test]
    fn a_post_sends_its_text() {
        let host = Host::new().answer("POST", URL, 201, "");
        host.run(|| post(URL.to_owned(), "a note".to_owned())).unwrap();
        assert_eq!(host.requests()[0].body(), b"a note");
    }
}
