//! The templates that can invoke each other by name.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::budget::{Budget, ExecutionLimits};
use crate::error::{ExecuteError, ParseError};
use crate::execute::execute;
use crate::functions::Functions;
use crate::parse::parse;
use crate::tree::Template;
use crate::value::Value;

/// Templates that can invoke each other.
#[derive(Debug)]
pub struct TemplateSet {
    left: Vec<u8>,
    right: Vec<u8>,
    templates: RefCell<BTreeMap<String, Arc<Template>>>,
}

impl Default for TemplateSet {
    fn default() -> Self {
        Self { left: b"{{".to_vec(), right: b"}}".to_vec(), templates: RefCell::default() }
    }
}

impl TemplateSet {
    /// Makes a set without templates.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the delimiters of actions. As in Go, an empty one stays `{{` or `}}`.
    #[must_use]
    pub fn delimiters(mut self, left: &str, right: &str) -> Self {
        for (delimiter, given) in [(&mut self.left, left), (&mut self.right, right)] {
            if !given.is_empty() {
                *delimiter = given.into();
            }
        }
        self
    }

    /// Parses a text and adds its templates: those that it defines, and under `name` the text outside of them. A
    /// template replaces one of the same name, unless it has nothing but space. `is_function` accepts the names of all
    /// functions.
    ///
    /// # Errors
    /// The first mistake in the text. The set is then as before.
    pub fn parse(&self, name: &str, text: &[u8], is_function: &dyn Fn(&str) -> bool) -> Result<(), ParseError> {
        let parsed = parse(name, text, (&self.left, &self.right), is_function)?;
        let mut templates = self.templates.borrow_mut();
        for (name, template) in parsed {
            if !template.is_empty() || !templates.contains_key(&name) {
                templates.insert(name, Arc::new(template));
            }
        }
        Ok(())
    }

    /// Returns the names of all templates, in their order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.templates.borrow().keys().cloned().collect()
    }

    /// Returns a template's source in Go's normal form: without comments, and with one space between operands.
    #[must_use]
    pub fn source(&self, name: &str) -> Option<String> {
        self.templates.borrow().get(name).map(ToString::to_string)
    }

    pub(crate) fn template(&self, name: &str) -> Option<Arc<Template>> {
        self.templates.borrow().get(name).cloned()
    }

    /// Executes a template with the data as its dot, and appends to the output.
    ///
    /// # Errors
    /// The first failure, with its place. The output then ends before the failure.
    pub fn execute(
        &self,
        name: &str,
        functions: &Functions,
        data: &Value,
        limits: ExecutionLimits,
        output: &mut Vec<u8>,
    ) -> Result<(), ExecuteError> {
        self.execute_within(name, functions, data, &Budget::new(limits), output)
    }

    /// Executes a template within the budget of an execution that has begun. A function that includes another text
    /// uses it, so that both together keep the limits.
    ///
    /// # Errors
    /// As [`TemplateSet::execute`].
    pub fn execute_within(
        &self,
        name: &str,
        functions: &Functions,
        data: &Value,
        budget: &Budget,
        output: &mut Vec<u8>,
    ) -> Result<(), ExecuteError> {
        let Some(template) = self.template(name) else {
            let message =
                format!("template: no template {} associated with the set", crate::format::quoted(name.as_bytes()));
            return Err(ExecuteError { template: name.to_owned(), message });
        };
        execute(&template, self, functions, budget, data, output)
    }
}
