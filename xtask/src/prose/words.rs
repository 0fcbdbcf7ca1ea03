//! Counts words in sentences, line by line. Code in backticks and in fences is not counted.

use std::ops::Range;

/// Words that have one limit together.
pub(super) struct Word {
    pub(super) name: &'static str,
    /// In lower case.
    forms: &'static [&'static str],
    allowed: Allowed,
}

/// The uses of a word that are not counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Allowed {
    None,
    /// At the beginning of a question.
    Question,
    /// In a line that names an RFC, which may be a quotation.
    Rfc,
}

pub(super) const WORDS: &[Word] = &[
    Word { name: "what", forms: &["what", "whatever"], allowed: Allowed::Question },
    Word { name: "behind", forms: &["behind"], allowed: Allowed::None },
    Word { name: "who", forms: &["who", "whoever", "nobody", "somebody", "everybody"], allowed: Allowed::None },
    Word { name: "octet", forms: &["octet", "octets"], allowed: Allowed::Rfc },
    // Verbs of persons, in the forms that follow a program's name: "you want" and "to know" are not counted.
    Word {
        name: "person",
        forms: &[
            "asks", "asked", "believes", "believed", "hears", "heard", "knows", "knew", "owes", "owed", "says", "said",
            "tells", "told", "wants", "wanted",
        ],
        allowed: Allowed::None,
    },
];

/// Lines that belong together: a paragraph, a list item, a heading, or adjacent comment lines.
pub(super) struct Block {
    /// Line number, text, and the text's place in `text`.
    lines: Vec<(usize, String, Range<usize>)>,
    /// The lines in lower case, with spaces for code.
    text: String,
}

impl Block {
    fn new(lines: &[(usize, &str)]) -> Self {
        let mut block = Self { lines: Vec::new(), text: String::new() };
        for (line, text) in lines {
            let from = block.text.len();
            block.text.push_str(&text.to_lowercase());
            block.lines.push((*line, (*text).to_owned(), from..block.text.len()));
            block.text.push(' ');
        }
        block.text = without_code(&block.text);
        block
    }

    /// Returns the number of words, without code.
    pub(super) fn words(&self) -> usize {
        self.text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count()
    }

    /// Returns the lines that contain the word, with the number of occurrences.
    pub(super) fn find(&self, word: &Word) -> Vec<(usize, &str, usize)> {
        let mut found = Vec::new();
        // Most blocks have none; a plain search finds that out faster.
        if !word.forms.iter().any(|form| self.text.contains(form)) {
            return found;
        }
        for (line, text, range) in &self.lines {
            if word.allowed == Allowed::Rfc && text.contains("RFC") {
                continue;
            }
            let counted = |(at, form): &(usize, &str)| {
                word.forms.contains(form)
                    && !(word.allowed == Allowed::Question && self.begins_question(range.start + at))
            };
            let count = split_words(&self.text[range.clone()]).filter(counted).count();
            if count > 0 {
                found.push((*line, text.as_str(), count));
            }
        }
        found
    }

    /// Whether a sentence begins at `at` and ends with a question mark.
    fn begins_question(&self, at: usize) -> bool {
        let before = self.text[..at].trim_end_matches(|c: char| c.is_whitespace() || "*_\"'“(#>-".contains(c));
        let begins = before.is_empty() || before.ends_with(['.', '?', '!', ':', '|']);
        let after = &self.text[at..];
        let ends = |(at, c): &(usize, char)| match c {
            '?' | '|' => true,
            // A dot in a name or number does not end a sentence.
            '.' | '!' => !after[at + 1..].starts_with(char::is_alphanumeric),
            _ => false,
        };
        begins && after.char_indices().find(ends).is_some_and(|(_, c)| c == '?')
    }
}

/// Splits a text into words, with the place of each. A word with an apostrophe is its part before that.
fn split_words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let letters = |c: char| c.is_alphanumeric() || c == '_';
    text.split(move |c| !letters(c)).map(move |word| (word.as_ptr() as usize - text.as_ptr() as usize, word))
}

/// Replaces code in backticks by spaces. A backtick without a partner stays.
fn without_code(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.find('`') {
        let ticks = rest[open..].len() - rest[open..].trim_start_matches('`').len();
        let (fence, inner) = (&rest[open..open + ticks], open + ticks);
        result.push_str(&rest[..open]);
        let Some(close) = rest[inner..].find(fence).map(|close| inner + close + ticks) else {
            result.push_str(fence);
            rest = &rest[inner..];
            continue;
        };
        // As many bytes as before, so that the places of lines stay.
        result.extend(std::iter::repeat_n(' ', close - open));
        rest = &rest[close..];
    }
    result + rest
}

/// Groups the comments of a file: adjacent lines are one block.
pub(super) fn blocks(comments: &[(usize, &str)]) -> Vec<Block> {
    comments.chunk_by(|before, after| before.0 + 1 == after.0).flat_map(paragraphs).collect()
}

/// Groups the lines of a Markdown file.
pub(super) fn markdown(text: &str) -> Vec<Block> {
    let lines: Vec<(usize, &str)> = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim())).collect();
    paragraphs(&lines)
}

/// Splits lines at blank lines, before headings, list items and table rows, and leaves out fenced code.
fn paragraphs(lines: &[(usize, &str)]) -> Vec<Block> {
    let (mut blocks, mut open): (Vec<Block>, Vec<(usize, &str)>) = (Vec::new(), Vec::new());
    let mut fenced = false;
    for (line, text) in lines {
        let fence = text.starts_with("```") || text.starts_with("~~~");
        let begins = text.is_empty() || fence || text.starts_with(['#', '|', '>', '-', '*']);
        if begins && !open.is_empty() {
            blocks.push(Block::new(&std::mem::take(&mut open)));
        }
        fenced ^= fence;
        if !fence && !fenced && !text.is_empty() {
            open.push((*line, text));
        }
    }
    if !open.is_empty() {
        blocks.push(Block::new(&open));
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, cases: &[(&str, usize)]) {
        let word = WORDS.iter().find(|word| word.name == name).unwrap();
        for (text, expected) in cases {
            let count: usize =
                markdown(text).iter().flat_map(|block| block.find(word)).map(|(_, _, count)| count).sum();
            assert_eq!(count, *expected, "{name} in: {text}");
        }
    }

    #[test]
    fn what_is_allowed_at_the_beginning_of_a_question() {
        check(
            "what",
            &[
                ("It keeps what it reads.", 1),
                ("What does it cost? Whatever it\ntakes.", 1),
                ("It fails. What\nthen?", 0),
                ("## What the server does", 1),
                ("- **What is 1.5 for?**", 0),
                ("And what is it for?", 1),
                ("`what` is code, and so is\n\n```\nwhat\n```\n", 0),
                ("| what? | what |", 1),
                ("somewhat and what_ever", 0),
            ],
        );
    }

    #[test]
    fn words_are_counted_as_a_whole_and_in_every_case() {
        check("behind", &[("Behind it, behind\nthem.", 2), ("behindhand", 0)]);
        check("who", &[("Who? Nobody's.", 2), ("whole", 0)]);
        check("person", &[("The server says so, as you know.", 1), ("told, told", 2)]);
    }

    #[test]
    fn octets_are_allowed_beside_an_rfc() {
        check("octet", &[("RFC 9112 §6: octets\nand octets", 1), ("`octets` are octets", 1)]);
    }

    #[test]
    fn lines_keep_their_numbers_and_code_is_no_words() {
        let blocks = blocks(&[(3, "It is"), (4, "what `it`"), (9, "is")]);
        let words: Vec<usize> = blocks.iter().map(Block::words).collect();
        assert_eq!(words, [3, 1]);
        assert_eq!(blocks[0].find(&WORDS[0]), [(4, "what `it`", 1)]);
    }
}
