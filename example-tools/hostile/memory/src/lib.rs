//! Wants more memory than it was given, and wants to keep it.

/// Attacks on memory.
#[portcullis_guest::tools]
mod memory {
    use std::hint::black_box;
    use std::sync::Mutex;

    const MIB: usize = 1 << 20;

    /// Take and touch memory, one MiB after the other: how much there was.
    pub fn grow(mib: u32) -> Result<String, String> {
        let mut held = Vec::new();
        for taken in 0..mib {
            let mut block = Vec::<u8>::new();
            if let Err(error) = block.try_reserve_exact(MIB) {
                return Err(format!("after {taken} MiB: {error}"));
            }
            block.resize(MIB, 1);
            held.push(black_box(block));
        }
        Ok(format!("{} MiB", held.len()))
    }

    /// Return this many MiB of bytes.
    pub fn big_return(mib: u32) -> Vec<u8> {
        vec![b'x'; mib as usize * MIB]
    }

    /// Return this many MiB of text.
    pub fn big_text(mib: u32) -> String {
        "x".repeat(mib as usize * MIB)
    }

    /// Return a list of this many small texts.
    pub fn many_items(count: u32) -> Vec<String> {
        (0..count).map(|number| number.to_string()).collect()
    }

    static KEPT: Mutex<Option<String>> = Mutex::new(None);

    /// Keep a text for a later call: what an earlier one left.
    pub fn remember(text: String) -> Option<String> {
        KEPT.lock().ok()?.replace(text)
    }
}
