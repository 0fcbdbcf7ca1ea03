//! A directive with its arguments and its block, as a tree.

use super::position::Position;
use super::token::Token;

/// One line of a block: a name, the arguments after it, and the block that it opens, if any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The first word.
    pub name: Token,
    /// The words after it on its line.
    pub arguments: Vec<Token>,
    /// The lines between its braces; `None` without braces.
    pub block: Option<Vec<Segment>>,
    /// Its last word, the closing brace if it has one.
    pub closes: Position,
}

impl Segment {
    /// All its words except braces, in order, for whoever rewrites texts.
    pub(crate) fn for_each_token(&mut self, change: &mut dyn FnMut(&mut Token)) {
        change(&mut self.name);
        self.arguments.iter_mut().for_each(&mut *change);
        for line in self.block.iter_mut().flatten() {
            line.for_each_token(change);
        }
    }

    /// The files its words come from.
    pub(crate) fn files(&self, into: &mut Vec<std::sync::Arc<str>>) {
        into.push(self.name.at.file.clone());
        into.extend(self.arguments.iter().map(|token| token.at.file.clone()));
        for line in self.block.iter().flatten() {
            line.files(into);
        }
    }

    /// What follows the name, read as a segment of its own: `@m not path /x` is `@m` with the segment `not path /x`.
    pub(crate) fn rest(&self) -> Option<Segment> {
        let (name, arguments) = self.arguments.split_first()?;
        Some(Segment {
            name: name.clone(),
            arguments: arguments.to_vec(),
            block: self.block.clone(),
            closes: self.closes.clone(),
        })
    }
}
