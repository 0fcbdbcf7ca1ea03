//! A directive with its arguments and its block, as a tree.

use super::position::Position;
use super::token::Token;

/// One line of a block: a name, the arguments after it, and the block that it opens, if any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The first token.
    pub name: Token,
    /// The tokens after it on its line.
    pub arguments: Vec<Token>,
    /// The lines between its braces; `None` without braces.
    pub block: Option<Vec<Segment>>,
    /// Position of the brace that opens the block.
    pub opens: Option<Position>,
    /// Position of its last token: the closing brace, if it has one.
    pub closes: Position,
}

impl Segment {
    /// Calls `change` for every token except for braces, in order.
    pub(crate) fn for_each_token(&mut self, change: &mut dyn FnMut(&mut Token)) {
        change(&mut self.name);
        self.arguments.iter_mut().for_each(&mut *change);
        for line in self.block.iter_mut().flatten() {
            line.for_each_token(change);
        }
    }

    /// Appends the file of each token to `into`, with duplicates.
    pub(crate) fn files(&self, into: &mut Vec<std::sync::Arc<str>>) {
        into.push(self.name.at.file.clone());
        into.extend(self.arguments.iter().map(|token| token.at.file.clone()));
        for line in self.block.iter().flatten() {
            line.files(into);
        }
    }

    /// The arguments as a segment of their own, with the first as its name: `@m not path /x` gives `not path /x`.
    pub(crate) fn rest(&self) -> Option<Segment> {
        let (name, arguments) = self.arguments.split_first()?;
        Some(Segment { name: name.clone(), arguments: arguments.to_vec(), ..self.clone() })
    }
}
