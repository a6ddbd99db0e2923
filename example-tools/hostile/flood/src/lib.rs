//! Writes more than anybody reads.

/// Attacks on the streams that a host keeps.
#[portcullis_guest::tools]
mod flood {
    use std::io::{self, Write};

    /// Write this many bytes to stdout.
    pub fn stdout(bytes: u64) -> Result<String, String> {
        fill(io::stdout(), bytes)
    }

    /// Write this many bytes to stderr.
    pub fn stderr(bytes: u64) -> Result<String, String> {
        fill(io::stderr(), bytes)
    }

    fn fill(mut stream: impl Write, bytes: u64) -> Result<String, String> {
        let block = [b'x'; 4096];
        let mut written = 0;
        while written < bytes {
            let next = block.len().min((bytes - written) as usize);
            let wrote = stream.write_all(&block[..next]).and_then(|()| stream.flush());
            wrote.map_err(|error| format!("after {written} bytes: {error}"))?;
            written += next as u64;
        }
        Ok(format!("{written} bytes"))
    }

    /// Write nothing to stderr, this many times.
    pub fn empty_writes(times: u64) -> Result<String, String> {
        for _ in 0..times {
            io::stderr().write(&[]).map_err(|error| error.to_string())?;
        }
        Ok(format!("{times} writes"))
    }

    /// Panic with a text, which `std` writes to stderr.
    pub fn panic_with(text: String) -> Result<String, String> {
        panic!("{text}");
    }
}
