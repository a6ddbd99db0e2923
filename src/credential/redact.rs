//! Takes secrets out of what comes back: as they are, in base64, percent-encoded and in hexadecimal, also where an answer arrives in
//! pieces. Each byte of a secret becomes a `*`, so that lengths stay what they were.
//!
//! Other encodings are out of reach: whoever is sent a credential can hand it on in a form that nobody foresees.

use std::collections::VecDeque;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use zeroize::Zeroizing;

use super::Secret;

/// What stands for a byte of a secret.
const MASK: u8 = b'*';

/// A text to be found, with the table of Knuth, Morris and Pratt: how much of it still fits after a mismatch.
struct Form {
    text: Zeroizing<Vec<u8>>,
    fallback: Vec<usize>,
    /// Whether upper and lower case are the same in it.
    folds: bool,
}

impl Form {
    fn new(text: Zeroizing<Vec<u8>>, folds: bool) -> Self {
        let mut fallback = vec![0; text.len() + 1];
        let mut fits = 0;
        for at in 1..text.len() {
            while fits > 0 && text[at] != text[fits] {
                fits = fallback[fits];
            }
            if text[at] == text[fits] {
                fits += 1;
            }
            fallback[at + 1] = fits;
        }
        Self { text, fallback, folds }
    }

    /// How much of the text fits after one more byte.
    fn after(&self, mut fits: usize, byte: u8) -> usize {
        let byte = if self.folds { byte.to_ascii_lowercase() } else { byte };
        if fits == self.text.len() {
            fits = self.fallback[fits];
        }
        while fits > 0 && self.text[fits] != byte {
            fits = self.fallback[fits];
        }
        if self.text[fits] == byte { fits + 1 } else { 0 }
    }
}

/// The forms of the secrets of one request. They are wiped when the last who needs them is gone.
#[derive(Clone)]
pub struct Forms(Arc<[Form]>);

impl Forms {
    /// Every form of every secret.
    pub fn of<'s>(secrets: impl IntoIterator<Item = &'s Secret>) -> Self {
        let mut forms = Vec::new();
        for secret in secrets {
            let secret = secret.bytes();
            forms.push(Form::new(Zeroizing::new(secret.to_vec()), false));
            let mut digits = Zeroizing::new(vec![0; secret.len() * 2]);
            // The room is what it takes.
            let _ = hex::encode_to_slice(secret, &mut digits);
            forms.push(Form::new(digits, true));
            for before in 0..3 {
                for alphabet in [&STANDARD, &URL_SAFE] {
                    let core = base64_core(secret, before, alphabet);
                    if !forms.iter().any(|form| form.text == core) {
                        forms.push(Form::new(core, false));
                    }
                }
            }
            let mut quoted = Zeroizing::new(Vec::with_capacity(secret.len() * 2));
            for byte in secret {
                if matches!(byte, b'"' | b'\\') {
                    quoted.push(b'\\');
                }
                quoted.push(*byte);
            }
            if quoted.len() > secret.len() {
                forms.push(Form::new(quoted, false));
            }
        }
        Self(forms.into())
    }

    /// A text without them, where it is at hand as a whole.
    pub fn take_out(&self, text: &[u8]) -> Vec<u8> {
        let mut redactor = Redactor::new(self.clone());
        let mut out = redactor.feed(text);
        out.extend(redactor.finish());
        out
    }

    /// Whether the name of a header holds one: names come in lower case, whatever was sent.
    pub fn are_in_name(&self, name: &str) -> bool {
        let name = name.as_bytes();
        self.0.iter().any(|form| name.windows(form.text.len()).any(|part| part.eq_ignore_ascii_case(&form.text)))
    }
}

/// The characters that stand for nothing but the secret, where so many bytes of something else share its first group.
fn base64_core(secret: &[u8], before: usize, alphabet: &base64::engine::GeneralPurpose) -> Zeroizing<Vec<u8>> {
    let mut padded = Zeroizing::new(vec![0; before + secret.len()]);
    padded[before..].copy_from_slice(secret);
    let mut encoded = Zeroizing::new(vec![0; padded.len().div_ceil(3) * 4]);
    let _ = alphabet.encode_slice(&*padded, &mut encoded);
    let (from, to) = ((before * 8).div_ceil(6), padded.len() * 8 / 6);
    Zeroizing::new(encoded[from..to].to_vec())
}

/// Reads a stream and gives it on without the secrets. What may be the beginning of one is held back until it is clear.
pub struct Redactor {
    forms: Forms,
    /// How much of each form fits at the end of what was read, as it came.
    plain: Vec<usize>,
    /// The same after percent-decoding.
    decoded: Vec<usize>,
    /// Where the last decoded bytes began; as many as the longest form has.
    begins: VecDeque<u64>,
    /// An escape that is not complete: where it began, and its first digit.
    escape: Option<(u64, Option<u8>)>,
    /// How many bytes were read.
    read: u64,
    /// Bytes that are not given on yet, and whether they are part of a secret.
    held: VecDeque<(u8, bool)>,
    longest: usize,
}

impl Redactor {
    /// At the beginning of a stream.
    pub fn new(forms: Forms) -> Self {
        let longest = forms.0.iter().map(|form| form.text.len()).max().unwrap_or(0);
        Self {
            plain: vec![0; forms.0.len()],
            decoded: vec![0; forms.0.len()],
            begins: VecDeque::with_capacity(longest + 1),
            escape: None,
            read: 0,
            held: VecDeque::new(),
            forms,
            longest,
        }
    }

    /// Reads the next piece, and gives what is clear by now.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        for byte in bytes {
            self.step(*byte);
        }
        let clear = self.clear();
        self.release(clear)
    }

    /// Gives the rest: nothing comes after it.
    pub fn finish(&mut self) -> Vec<u8> {
        self.release(self.held.len())
    }

    fn release(&mut self, count: usize) -> Vec<u8> {
        self.held.drain(..count).map(|(byte, is_secret)| if is_secret { MASK } else { byte }).collect()
    }

    /// How many of the held bytes can be part of nothing that is still to come.
    fn clear(&self) -> usize {
        let mut from = self.read;
        for (at, fits) in self.plain.iter().enumerate() {
            let fits = if *fits == self.forms.0[at].text.len() { self.forms.0[at].fallback[*fits] } else { *fits };
            from = from.min(self.read - fits as u64);
        }
        for (at, fits) in self.decoded.iter().enumerate() {
            let fits = if *fits == self.forms.0[at].text.len() { self.forms.0[at].fallback[*fits] } else { *fits };
            if fits > 0 {
                from = from.min(self.begins[self.begins.len() - fits]);
            }
        }
        if let Some((began, _)) = self.escape {
            from = from.min(began);
        }
        self.held.len() - usize::try_from(self.read - from).unwrap_or(self.held.len()).min(self.held.len())
    }

    fn step(&mut self, byte: u8) {
        let at = self.read;
        self.read += 1;
        self.held.push_back((byte, false));
        for index in 0..self.forms.0.len() {
            let form = &self.forms.0[index];
            let fits = self.plain[index];
            let fits = if fits == 0 && form.text[0] != byte && !form.folds { 0 } else { form.after(fits, byte) };
            self.plain[index] = fits;
            if fits == form.text.len() {
                self.mask(self.read - fits as u64, self.read);
            }
        }
        match (self.escape.take(), byte) {
            (Some((began, None)), digit) if digit.is_ascii_hexdigit() => self.escape = Some((began, Some(digit))),
            (Some((began, Some(first))), second) if second.is_ascii_hexdigit() => {
                let value = |digit: u8| char::from(digit).to_digit(16).unwrap_or(0);
                let byte = u8::try_from(value(first) * 16 + value(second)).unwrap_or(0);
                self.decode(byte, began, self.read);
            }
            (incomplete, byte) => {
                // No escape after all: its characters stand for themselves.
                if let Some((began, first)) = incomplete {
                    self.decode(b'%', began, began + 1);
                    if let Some(first) = first {
                        self.decode(first, began + 1, began + 2);
                    }
                }
                if byte == b'%' {
                    self.escape = Some((at, None));
                } else {
                    self.decode(byte, at, self.read);
                }
            }
        }
    }

    /// One byte of the percent-decoded stream, which stands for the bytes from `began` to `ended`.
    fn decode(&mut self, byte: u8, began: u64, ended: u64) {
        self.begins.push_back(began);
        if self.begins.len() > self.longest {
            self.begins.pop_front();
        }
        for index in 0..self.forms.0.len() {
            let form = &self.forms.0[index];
            let fits = self.decoded[index];
            let fits = if fits == 0 && form.text[0] != byte && !form.folds { 0 } else { form.after(fits, byte) };
            self.decoded[index] = fits;
            if fits == form.text.len() {
                self.mask(self.begins[self.begins.len() - fits], ended);
            }
        }
    }

    fn mask(&mut self, from: u64, to: u64) {
        let first = self.read - self.held.len() as u64;
        for at in from.max(first)..to {
            if let Some(held) = self.held.get_mut(usize::try_from(at - first).unwrap_or(usize::MAX)) {
                held.1 = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn forms(secret: &str) -> Forms {
        Forms::of([&Secret(Zeroizing::new(secret.as_bytes().to_vec()))])
    }

    fn percent(text: &[u8], which: impl Fn(usize) -> bool) -> String {
        let encoded = text.iter().enumerate().map(|(at, byte)| match which(at) {
            true if at % 2 == 0 => format!("%{byte:02x}"),
            true => format!("%{byte:02X}"),
            false => char::from(*byte).to_string(),
        });
        encoded.collect()
    }

    #[test]
    fn every_form_is_found_wherever_it_stands() {
        let secret = "gh0_aB+/c%41\"x\\~=yz";
        let forms = forms(secret);
        for before in ["", "a", "ab", "abc", "%", "%4", "gh0_gh0_"] {
            for after in ["", "z", "zz", "%41"] {
                let near = |text: String| format!("{before}{text}{after}").into_bytes();
                let within = format!("{before}{secret}{after}");
                for (what, text, leak) in [
                    ("plain", near(secret.to_owned()), secret.to_owned()),
                    ("hex", near(hex::encode(secret)), hex::encode(secret)),
                    ("HEX", near(hex::encode_upper(secret)), hex::encode_upper(secret)),
                    ("percent", near(percent(secret.as_bytes(), |_| true)), percent(secret.as_bytes(), |_| true)),
                    ("some", near(percent(secret.as_bytes(), |at| at % 3 == 0)), "aB+".to_owned()),
                    ("json", near(serde_json::to_string(secret).unwrap()), "x\\\\~=yz".to_owned()),
                    ("base64", STANDARD.encode(&within).into_bytes(), STANDARD.encode(secret)[4..20].to_owned()),
                    ("base64url", URL_SAFE.encode(&within).into_bytes(), URL_SAFE.encode(secret)[4..20].to_owned()),
                ] {
                    let out = forms.take_out(&text);
                    assert_eq!(out.len(), text.len());
                    let shown = String::from_utf8_lossy(&out);
                    let stars = shown.matches('*').count();
                    assert!(!shown.contains(&leak) && stars >= secret.len(), "{what}: {shown}");
                }
            }
        }
    }

    #[test]
    fn what_holds_no_secret_is_left_as_it_is_and_hardly_held_back() {
        let forms = forms("abcabcabd");
        let text = b"abcabcab abc %61 %6 % abcabcabcabc".as_slice();
        assert_eq!(forms.take_out(text), text);
        let mut redactor = Redactor::new(forms);
        assert_eq!(redactor.feed(b"hello abcab"), b"hello ");
        assert_eq!(redactor.feed(b"x"), b"abcabx");
        assert_eq!(redactor.feed(b"abcabcabcabd!"), b"abc*********!");
    }

    proptest! {
        /// The pieces that an answer comes in make no difference, and neither does what is around the secret.
        #[test]
        fn pieces_make_no_difference(
            parts in proptest::collection::vec(prop_oneof![
                Just("s3cret%-s3c".to_owned()), Just("s3cret%-".to_owned()), Just("%73".to_owned()),
                Just("%2".to_owned()), "[s3cret%-]{0,6}", Just(percent(b"s3cret%-s3c", |at| at % 2 == 1)),
            ], 0..12),
            cuts in proptest::collection::vec(1_usize..9, 1..20),
        ) {
            let text: Vec<u8> = parts.concat().into_bytes();
            let forms = forms("s3cret%-s3c");
            let whole = forms.take_out(&text);
            let mut redactor = Redactor::new(forms.clone());
            let (mut rest, mut out) = (text.as_slice(), Vec::new());
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, others) = rest.split_at((*cut).min(rest.len()));
                out.extend(redactor.feed(piece));
                rest = others;
            }
            out.extend(redactor.finish());
            prop_assert_eq!(&out, &whole);
            prop_assert_eq!(out.len(), text.len());
            let shown = String::from_utf8_lossy(&whole).into_owned();
            prop_assert!(!shown.contains("s3cret%-s3c"));
            // Every byte that is masked is part of something that reads as the secret; the others are as they were.
            prop_assert!(whole.iter().zip(&text).all(|(new, old)| new == old || *new == MASK));
        }
    }
}
