//! The nodes of a document, out of its tokens, with what is said where others were expected.

use std::collections::HashMap;
use std::mem;

use super::resolve::TAGS;
use super::scanner::{Mark, Scanner, Token};
use super::{Failure, MAX_DEPTH};

/// Where a node is among those of its document.
pub(super) type Id = usize;

pub(super) struct Node {
    /// Counted from 0.
    pub(super) line: usize,
    pub(super) content: Content,
}

pub(super) enum Content {
    Scalar {
        /// Empty if there is none.
        tag: String,
        text: String,
        /// Whether what it is may be guessed.
        is_implicit: bool,
    },
    /// The same as another node, by its name.
    Alias(String, Id),
    List(Vec<Id>),
    Map(Vec<(Id, Id)>),
}

pub(super) struct Document {
    pub(super) nodes: Vec<Node>,
    pub(super) root: Id,
}

/// The first document, if there is one. What comes after it is not looked at.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<Document>, Failure> {
    let mut parser = Parser {
        scanner: Scanner::new(bytes),
        tags: Vec::new(),
        anchors: HashMap::new(),
        nodes: Vec::new(),
        depth: 0,
    };
    let root = parser.document()?;
    Ok(root.map(|root| Document { nodes: parser.nodes, root }))
}

struct Parser {
    scanner: Scanner,
    /// What handles stand for.
    tags: Vec<(String, String)>,
    anchors: HashMap<String, Id>,
    nodes: Vec<Node>,
    depth: usize,
}

/// What stands before a node.
struct Properties {
    anchor: Option<String>,
    tag: String,
}

impl Parser {
    fn peek(&mut self) -> Result<(&Token, Mark), Failure> {
        self.scanner.peek()
    }

    /// Whether the next token is one of these.
    fn is_next(&mut self, tokens: &[Token]) -> Result<bool, Failure> {
        Ok(tokens.contains(self.peek()?.0))
    }

    /// Takes the next token if it is this one, and tells where it was.
    fn take(&mut self, token: &Token) -> Result<Option<Mark>, Failure> {
        let (next, mark) = self.peek()?;
        let is_it = next == token;
        if is_it {
            self.scanner.take();
        }
        Ok(is_it.then_some(mark))
    }

    /// What is said of a token that should be another one.
    fn unexpected<T>(&mut self, context: Mark, problem: &'static str) -> Result<T, Failure> {
        let (_, mark) = self.peek()?;
        Err(failed(context, problem, mark))
    }

    fn document(&mut self) -> Result<Option<Id>, Failure> {
        let begins = |token: &Token| {
            matches!(token, Token::Version(..) | Token::TagDirective(..) | Token::DocumentStart)
        };
        let root = match self.peek()?.0 {
            Token::End => return Ok(None),
            token if begins(token) => {
                self.directives()?;
                if self.take(&Token::DocumentStart)?.is_none() {
                    return self.unexpected(Mark::default(), "did not find expected <document start>");
                }
                let (token, mark) = self.peek()?;
                if begins(token) || matches!(token, Token::DocumentEnd | Token::End) {
                    self.empty(mark)
                } else {
                    self.node(true, false)?
                }
            }
            _ => {
                self.directives()?;
                self.node(true, false)?
            }
        };
        // Whatever ends it has to be a token.
        self.peek()?;
        Ok(Some(root))
    }

    fn directives(&mut self) -> Result<(), Failure> {
        let mut has_version = false;
        loop {
            let (token, mark) = self.peek()?;
            let refuse = |problem| Err(failed(Mark::default(), problem, mark));
            match token {
                Token::Version(..) if has_version => return refuse("found duplicate %YAML directive"),
                Token::Version(1, 1) => has_version = true,
                Token::Version(..) => return refuse("found incompatible YAML document"),
                Token::TagDirective(handle, prefix) => {
                    let (handle, prefix) = (handle.clone(), prefix.clone());
                    if self.tags.iter().any(|(known, _)| *known == handle) {
                        return refuse("found duplicate %TAG directive");
                    }
                    self.tags.push((handle, prefix));
                }
                _ => break,
            }
            self.scanner.take();
        }
        // Directives come before these, and are found first.
        self.tags.push(("!".to_owned(), "!".to_owned()));
        self.tags.push(("!!".to_owned(), TAGS.to_owned()));
        Ok(())
    }

    fn add(&mut self, mark: Mark, content: Content) -> Id {
        self.nodes.push(Node { line: mark.line, content });
        self.nodes.len() - 1
    }

    /// What stands where nothing does.
    fn empty(&mut self, mark: Mark) -> Id {
        self.add(mark, Content::Scalar { tag: String::new(), text: String::new(), is_implicit: true })
    }

    /// A node of a block, unless one of these tokens says that there is none.
    fn node_unless(&mut self, ends: &[Token], takes_entries: bool, mark: Mark) -> Result<Id, Failure> {
        if self.is_next(ends)? { Ok(self.empty(mark)) } else { self.node(true, takes_entries) }
    }

    /// A node. In a map, the entries of a list need not be further to the right than the key.
    fn node(&mut self, is_block: bool, takes_entries: bool) -> Result<Id, Failure> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Failure::new(format!("exceeded max depth of {MAX_DEPTH}")));
        }
        let id = self.node_within(is_block, takes_entries);
        self.depth -= 1;
        id
    }

    fn node_within(&mut self, is_block: bool, takes_entries: bool) -> Result<Id, Failure> {
        let (token, start) = self.peek()?;
        if let Token::Alias(name) = token {
            let name = name.clone();
            self.scanner.take();
            let Some(&target) = self.anchors.get(&name) else {
                return Err(Failure::new(format!("unknown anchor '{name}' referenced")));
            };
            return Ok(self.add(start, Content::Alias(name, target)));
        }
        let Properties { anchor, tag } = self.properties(start)?;
        let (token, mark) = self.peek()?;
        let content = match token {
            Token::Entry if takes_entries => Content::List(Vec::new()),
            Token::OpenList => Content::List(Vec::new()),
            Token::BlockSequence if is_block => Content::List(Vec::new()),
            Token::OpenMap => Content::Map(Vec::new()),
            Token::BlockMapping if is_block => Content::Map(Vec::new()),
            Token::Scalar { text, is_plain } => Content::Scalar {
                text: text.clone(),
                is_implicit: tag.is_empty() && *is_plain || tag == "!",
                tag,
            },
            _ if anchor.is_some() || !tag.is_empty() => {
                Content::Scalar { text: String::new(), is_implicit: tag.is_empty(), tag }
            }
            _ => return Err(failed(start, "did not find expected node content", mark)),
        };
        let token = token.clone();
        let id = self.add(start, content);
        if let Some(anchor) = anchor {
            self.anchors.insert(anchor, id);
        }
        match token {
            Token::Entry if takes_entries => self.indentless_sequence(id)?,
            Token::BlockSequence if is_block => self.block_sequence(id)?,
            Token::BlockMapping if is_block => self.block_mapping(id)?,
            Token::OpenList => self.flow_sequence(id)?,
            Token::OpenMap => self.flow_mapping(id)?,
            Token::Scalar { .. } => drop(self.scanner.take()),
            _ => {}
        }
        Ok(id)
    }

    /// A name and a tag, in any order.
    fn properties(&mut self, start: Mark) -> Result<Properties, Failure> {
        let (mut anchor, mut tag) = (None, None);
        loop {
            let (token, mark) = self.peek()?;
            match token {
                Token::Anchor(name) if anchor.is_none() => anchor = Some(name.clone()),
                Token::Tag(handle, suffix) if tag.is_none() => {
                    tag = Some((handle.clone(), suffix.clone(), mark));
                }
                _ => break,
            }
            self.scanner.take();
        }
        let tag = match tag {
            None => String::new(),
            Some((handle, suffix, _)) if handle.is_empty() => suffix,
            Some((handle, suffix, mark)) => {
                let prefix = self.tags.iter().find(|(known, _)| *known == handle);
                let (_, prefix) = prefix.ok_or_else(|| failed(start, "found undefined tag handle", mark))?;
                format!("{prefix}{suffix}")
            }
        };
        Ok(Properties { anchor, tag })
    }

    fn item(&mut self, list: Id, item: Id) {
        if let Content::List(items) = &mut self.nodes[list].content {
            items.push(item);
        }
    }

    fn member(&mut self, map: Id, key: Id, value: Id) {
        if let Content::Map(members) = &mut self.nodes[map].content {
            members.push((key, value));
        }
    }

    fn block_sequence(&mut self, list: Id) -> Result<(), Failure> {
        let (_, context) = self.peek()?;
        self.scanner.take();
        while let Some(mark) = self.take(&Token::Entry)? {
            let item = self.node_unless(&[Token::Entry, Token::BlockEnd], false, mark)?;
            self.item(list, item);
        }
        match self.take(&Token::BlockEnd)? {
            Some(_) => Ok(()),
            None => self.unexpected(context, "did not find expected '-' indicator"),
        }
    }

    fn indentless_sequence(&mut self, list: Id) -> Result<(), Failure> {
        while let Some(mark) = self.take(&Token::Entry)? {
            let ends = [Token::Entry, Token::Key, Token::Value, Token::BlockEnd];
            let item = self.node_unless(&ends, false, mark)?;
            self.item(list, item);
        }
        Ok(())
    }

    fn block_mapping(&mut self, map: Id) -> Result<(), Failure> {
        const ENDS: [Token; 3] = [Token::Key, Token::Value, Token::BlockEnd];
        let (_, context) = self.peek()?;
        self.scanner.take();
        while let Some(mark) = self.take(&Token::Key)? {
            let key = self.node_unless(&ENDS, true, mark)?;
            let value = match self.take(&Token::Value)? {
                Some(mark) => self.node_unless(&ENDS, true, mark)?,
                None => self.empty_here()?,
            };
            self.member(map, key, value);
        }
        match self.take(&Token::BlockEnd)? {
            Some(_) => Ok(()),
            None => self.unexpected(context, "did not find expected key"),
        }
    }

    fn empty_here(&mut self) -> Result<Id, Failure> {
        let (_, mark) = self.peek()?;
        Ok(self.empty(mark))
    }

    /// Whether another item follows in brackets, behind a comma unless it is the first.
    fn has_another(
        &mut self,
        context: Mark,
        is_first: bool,
        close: &Token,
        expected: &'static str,
    ) -> Result<bool, Failure> {
        if self.take(close)?.is_some() {
            return Ok(false);
        }
        if !is_first && self.take(&Token::Comma)?.is_none() {
            return self.unexpected(context, expected);
        }
        Ok(is_first || self.take(close)?.is_none())
    }

    fn flow_sequence(&mut self, list: Id) -> Result<(), Failure> {
        let (_, context) = self.peek()?;
        self.scanner.take();
        let mut is_first = true;
        let expected = "did not find expected ',' or ']'";
        while self.has_another(context, mem::take(&mut is_first), &Token::CloseList, expected)? {
            let item = match self.take(&Token::Key)? {
                Some(mark) => self.pair(mark)?,
                None => self.node(false, false)?,
            };
            self.item(list, item);
        }
        Ok(())
    }

    /// A map of one member, without brackets of its own.
    fn pair(&mut self, mark: Mark) -> Result<Id, Failure> {
        let map = self.add(mark, Content::Map(Vec::new()));
        let (_, mark) = self.peek()?;
        let key = if self.is_next(&[Token::Value, Token::Comma, Token::CloseList])? {
            // What follows a key that is not there gets lost with it.
            self.scanner.take();
            self.empty(mark)
        } else {
            self.node(false, false)?
        };
        let value = self.flow_value(&Token::CloseList)?;
        self.member(map, key, value);
        Ok(map)
    }

    fn flow_value(&mut self, close: &Token) -> Result<Id, Failure> {
        let is_said = self.take(&Token::Value)?.is_some();
        if is_said && !self.is_next(&[Token::Comma, close.clone()])? {
            return self.node(false, false);
        }
        self.empty_here()
    }

    fn flow_mapping(&mut self, map: Id) -> Result<(), Failure> {
        let (_, context) = self.peek()?;
        self.scanner.take();
        let mut is_first = true;
        let expected = "did not find expected ',' or '}'";
        while self.has_another(context, mem::take(&mut is_first), &Token::CloseMap, expected)? {
            let (key, value) = if self.take(&Token::Key)?.is_some() {
                let is_empty = self.is_next(&[Token::Value, Token::Comma, Token::CloseMap])?;
                let key = if is_empty { self.empty_here()? } else { self.node(false, false)? };
                (key, self.flow_value(&Token::CloseMap)?)
            } else {
                (self.node(false, false)?, self.empty_here()?)
            };
            self.member(map, key, value);
        }
        Ok(())
    }
}

/// What is said of a token: with its line, or with that of what it is in if it stands on the first one.
fn failed(context: Mark, problem: &'static str, mark: Mark) -> Failure {
    Failure::at(if mark.line > 0 { mark.line } else { context.line }, problem)
}
