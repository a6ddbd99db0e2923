//! The token of a consent. Whoever holds it may make one exact call, once, within five minutes; the host keeps its digest alone.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::ids::ConsentDigest;

/// What a token begins with: it can be told from an option, and be found where it does not belong.
const PREFIX: &str = "consent_";

/// 256 random bits. Its `Debug` form hides them.
#[derive(Clone, PartialEq, Eq)]
pub struct ConsentToken([u8; 32]);

/// A text that is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a consent is a token that `portcullis consent` printed")]
pub struct TokenError;

impl ConsentToken {
    /// A new one, from the operating system's cryptographic source.
    ///
    /// # Errors
    ///
    /// The operating system has no randomness to give.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// What is kept of it.
    pub fn digest(&self) -> ConsentDigest {
        ConsentDigest::of(&self.0)
    }

    /// The token as text, for whoever is to use it.
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl FromStr for ConsentToken {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let encoded = text.strip_prefix(PREFIX).ok_or(TokenError)?;
        let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| TokenError)?;
        Ok(Self(bytes.try_into().map_err(|_| TokenError)?))
    }
}

impl fmt::Debug for ConsentToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConsentToken({})", self.digest().short())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_was_written_and_never_shown() {
        let token = ConsentToken::random().unwrap();
        assert_eq!(token.reveal().parse(), Ok(token.clone()));
        assert_ne!(ConsentToken::random().unwrap(), token);
        assert!(!format!("{token:?}").contains(&token.reveal()[PREFIX.len()..PREFIX.len() + 8]));
        for bad in ["", "consent_", "consent_AAAA", &token.reveal()[PREFIX.len()..], &format!("{}A", token.reveal())] {
            assert_eq!(bad.parse::<ConsentToken>(), Err(TokenError), "{bad}");
        }
    }
}
