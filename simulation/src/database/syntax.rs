//! The part of PostgreSQL's SQL that rlock's statements are of: their text, read into statements.

use super::value::{ONE, SqlError, Value, span, strange, time};

/// A statement.
#[derive(Clone, Debug)]
pub enum Statement {
    /// SELECT, and what UNION ALL adds.
    Select(Vec<Select>),
    /// UPDATE.
    Update {
        /// The columns, and what they are set to.
        sets: Vec<(String, Expr)>,
        /// The condition.
        condition: Expr,
    },
    /// INSERT.
    Insert {
        /// The name by which the row that is there goes.
        alias: Option<String>,
        /// The columns.
        columns: Vec<String>,
        /// The row, unless its condition does not hold.
        row: Select,
        /// The treatment of a row that is there.
        conflict: Conflict,
    },
}

/// The treatment of a row that is there already.
#[derive(Clone, Debug)]
pub enum Conflict {
    /// An error.
    Error,
    /// DO NOTHING.
    Nothing,
    /// DO UPDATE: what is set, and the condition.
    Update(Vec<(String, Expr)>, Expr),
}

/// One SELECT.
#[derive(Clone, Debug)]
pub struct Select {
    pub(super) items: Vec<Expr>,
    pub(super) from: Option<String>,
    pub(super) condition: Expr,
}

/// An expression.
#[derive(Clone, Debug)]
pub enum Expr {
    /// A value.
    Literal(Value),
    /// A column, perhaps with the name of its row.
    Column(Option<String>, String),
    /// A call of a function.
    Call(String, Vec<Self>),
    /// An operator between two.
    Between(String, Box<Self>, Box<Self>),
    /// NOT.
    Not(Box<Self>),
    /// A cast to a type.
    Cast(Box<Self>, String),
    /// EXISTS.
    Exists(Box<Select>),
    /// CASE x WHEN a THEN b ELSE c END.
    Case(Box<[Self; 4]>),
}

#[derive(Clone, PartialEq, Debug)]
enum Token {
    Word(String),
    Text(String),
    Number(i128),
    Symbol(String),
    End,
}

/// Operators, those that bind less first.
const OPERATORS: [&[&str]; 7] = [
    &["or"],
    &["and"],
    // NOT binds between these.
    &["=", "<", "<=", ">", ">=", "like"],
    &["||"],
    &["+", "-"],
    &["*"],
    &["::"],
];

/// Where NOT stands among them.
const NOT: usize = 2;

/// Reads the statements of a message.
pub fn statements(text: &str) -> Result<Vec<Statement>, SqlError> {
    let tokens = tokens(text)?;
    let mut reader = Reader { tokens, at: 0 };
    let mut all = Vec::new();
    loop {
        while reader.takes(";") {}
        if reader.peek() == &Token::End {
            return Ok(all);
        }
        all.push(reader.statement()?);
        if reader.peek() != &Token::End {
            reader.need(";")?;
        }
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, SqlError> {
    let mut all = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let Some(first) = rest.chars().next() else {
            all.push(Token::End);
            return Ok(all);
        };
        let escapes = rest.starts_with("E'");
        let length = if first == '\'' || escapes {
            let (read, length) = quoted(&rest[usize::from(escapes)..], escapes)?;
            all.push(Token::Text(read));
            length + usize::from(escapes)
        } else if first.is_ascii_digit() {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
            let number = &rest[..end.unwrap_or(rest.len())];
            all.push(Token::Number(millionths(number)?));
            number.len()
        } else if first.is_alphabetic() || first == '_' {
            let end = rest.find(|c: char| !c.is_alphanumeric() && !"_$".contains(c));
            let word = &rest[..end.unwrap_or(rest.len())];
            all.push(Token::Word(word.to_lowercase()));
            word.len()
        } else {
            let two = ["<=", ">=", "||", "::", "=>"]
                .into_iter()
                .find(|two| rest.starts_with(two));
            let symbol = two.map_or_else(|| first.to_string(), str::to_owned);
            let length = symbol.len();
            all.push(Token::Symbol(symbol));
            length
        };
        rest = &rest[length..];
    }
}

/// Reads a literal. Returns it, and its length.
fn quoted(text: &str, escapes: bool) -> Result<(String, usize), SqlError> {
    let mut read = String::new();
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' if chars.next_if(|(_, next)| *next == '\'').is_some() => read.push('\''),
            '\'' => return Ok((read, at + 1)),
            '\\' if escapes => match chars.next() {
                Some((_, 'n')) => read.push('\n'),
                Some((_, next)) => read.push(next),
                None => break,
            },
            c => read.push(c),
        }
    }
    Err(strange("a literal without an end".to_owned()))
}

fn millionths(text: &str) -> Result<i128, SqlError> {
    let wrong = || strange(format!("the number {text}"));
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let [whole, part] = [whole.to_owned(), format!("{part:0<6}")].map(|text| text.parse::<i128>());
    Ok(whole.map_err(|_| wrong())? * ONE + part.map_err(|_| wrong())?)
}

struct Reader {
    tokens: Vec<Token>,
    at: usize,
}

impl Reader {
    fn peek(&self) -> &Token {
        &self.tokens[self.at]
    }

    fn next(&mut self) -> Token {
        let token = self.tokens[self.at].clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    fn is(&self, text: &str) -> bool {
        matches!(self.peek(), Token::Word(word) | Token::Symbol(word) if word == text)
    }

    fn takes(&mut self, text: &str) -> bool {
        let is = self.is(text);
        if is {
            self.next();
        }
        is
    }

    fn need(&mut self, text: &str) -> Result<(), SqlError> {
        for word in text.split(' ') {
            if !self.takes(word) {
                return Err(strange(format!("{:?} where {text} stands", self.peek())));
            }
        }
        Ok(())
    }

    fn word(&mut self) -> Result<String, SqlError> {
        match self.next() {
            Token::Word(word) => Ok(word),
            other => Err(strange(format!("{other:?} where a name stands"))),
        }
    }

    fn list<T>(
        &mut self,
        one: impl Fn(&mut Self) -> Result<T, SqlError>,
    ) -> Result<Vec<T>, SqlError> {
        let mut all = vec![one(self)?];
        while self.takes(",") {
            all.push(one(self)?);
        }
        Ok(all)
    }

    fn statement(&mut self) -> Result<Statement, SqlError> {
        if self.takes("update") {
            self.table()?;
            self.need("set")?;
            let sets = self.sets()?;
            let condition = self.condition()?;
            return Ok(Statement::Update { sets, condition });
        }
        if self.takes("insert") {
            self.need("into")?;
            return self.insert();
        }
        let mut all = vec![self.select()?];
        while self.takes("union") {
            self.need("all")?;
            all.push(self.select()?);
        }
        Ok(Statement::Select(all))
    }

    fn insert(&mut self) -> Result<Statement, SqlError> {
        self.table()?;
        let alias = self.takes("as").then(|| self.word()).transpose()?;
        self.need("(")?;
        let columns = self.list(Self::word)?;
        self.need(")")?;
        let row = if self.takes("values") {
            self.need("(")?;
            let items = self.list(Self::expression)?;
            self.need(")")?;
            Select {
                items,
                from: None,
                condition: truth(),
            }
        } else {
            self.select()?
        };
        let mut conflict = Conflict::Error;
        if self.takes("on") {
            self.need("conflict")?;
            if self.takes("(") {
                self.word()?;
                self.need(")")?;
            }
            self.need("do")?;
            conflict = if self.takes("nothing") {
                Conflict::Nothing
            } else {
                self.need("update set")?;
                Conflict::Update(self.sets()?, self.condition()?)
            };
        }
        Ok(Statement::Insert {
            alias,
            columns,
            row,
            conflict,
        })
    }

    fn table(&mut self) -> Result<String, SqlError> {
        let name = self.word()?;
        if !matches!(name.as_str(), "shedlock" | "pg_settings") {
            let why = format!("relation \"{name}\" does not exist");
            return Err(SqlError("42P01", why));
        }
        Ok(name)
    }

    fn sets(&mut self) -> Result<Vec<(String, Expr)>, SqlError> {
        self.list(|reader| {
            let column = reader.word()?;
            reader.need("=")?;
            Ok((column, reader.expression()?))
        })
    }

    fn condition(&mut self) -> Result<Expr, SqlError> {
        if self.takes("where") {
            self.expression()
        } else {
            Ok(truth())
        }
    }

    fn select(&mut self) -> Result<Select, SqlError> {
        self.need("select")?;
        let items = self.list(Self::expression)?;
        let from = self.takes("from").then(|| self.table()).transpose()?;
        Ok(Select {
            items,
            from,
            condition: self.condition()?,
        })
    }

    fn expression(&mut self) -> Result<Expr, SqlError> {
        self.operation(0)
    }

    /// Reads what binds at least as much as the operators of this level.
    fn operation(&mut self, level: usize) -> Result<Expr, SqlError> {
        if level == OPERATORS.len() {
            return self.operand();
        }
        if level == NOT && self.takes("not") {
            return Ok(Expr::Not(Box::new(self.operation(NOT)?)));
        }
        let mut left = self.operation(level + 1)?;
        while let Some(operator) = OPERATORS[level].iter().find(|text| self.is(text)) {
            self.next();
            left = if *operator == "::" {
                Expr::Cast(Box::new(left), self.word()?)
            } else {
                let right = self.operation(level + 1)?;
                Expr::Between((*operator).to_owned(), Box::new(left), Box::new(right))
            };
        }
        Ok(left)
    }

    fn operand(&mut self) -> Result<Expr, SqlError> {
        let literal = |value| Ok(Expr::Literal(value));
        let word = match self.next() {
            Token::Text(text) => return literal(Value::Text(text)),
            Token::Number(number) => return literal(Value::Number(number)),
            Token::Symbol(symbol) if symbol == "-" => {
                let operand = Box::new(self.operand()?);
                let zero = Box::new(Expr::Literal(Value::Number(0)));
                return Ok(Expr::Between("-".to_owned(), zero, operand));
            }
            Token::Symbol(symbol) if symbol == "(" => {
                let inner = self.expression()?;
                self.need(")")?;
                return Ok(inner);
            }
            Token::Word(word) => word,
            other => return Err(strange(format!("{other:?} where an expression stands"))),
        };
        match (word.as_str(), self.peek().clone()) {
            ("true", _) => literal(Value::Bool(true)),
            ("false", _) => literal(Value::Bool(false)),
            ("null", _) => literal(Value::Null),
            ("current_timestamp", _) => Ok(Expr::Call(word, Vec::new())),
            ("interval", Token::Text(text)) => {
                self.next();
                literal(span(&text)?)
            }
            ("timestamp", Token::Text(text)) => {
                self.next();
                literal(Value::Time(time(&text)?))
            }
            ("exists", _) => {
                self.need("(")?;
                let select = self.select()?;
                self.need(")")?;
                Ok(Expr::Exists(Box::new(select)))
            }
            ("case", _) => {
                let of = self.expression()?;
                self.need("when")?;
                let when = self.expression()?;
                self.need("then")?;
                let then = self.expression()?;
                self.need("else")?;
                let other = self.expression()?;
                self.need("end")?;
                Ok(Expr::Case(Box::new([of, when, then, other])))
            }
            (_, Token::Symbol(next)) if next == "(" => self.call(word),
            (_, Token::Symbol(next)) if next == "." => {
                self.next();
                Ok(Expr::Column(Some(word), self.word()?))
            }
            _ => Ok(Expr::Column(None, word)),
        }
    }

    fn call(&mut self, name: String) -> Result<Expr, SqlError> {
        self.need("(")?;
        if name == "extract" {
            self.need("epoch from")?;
        }
        let mut arguments = Vec::new();
        while !self.takes(")") {
            if name == "make_interval" {
                self.need("secs =>")?;
            }
            arguments.push(self.expression()?);
            if !self.is(")") {
                self.need(",")?;
            }
        }
        Ok(Expr::Call(name, arguments))
    }
}

fn truth() -> Expr {
    Expr::Literal(Value::Bool(true))
}
