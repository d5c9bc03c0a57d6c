//! The syntax tree of the Python subset, borrowed from the text. It knows nothing of Relax or TIR.

use relax_ir::Span;
use std::borrow::Cow;

#[derive(Clone, Debug)]
pub struct Expr<'a> {
    pub kind: ExprKind<'a>,
    pub span: Span,
    /// Height of the tree: bounded by [`MAX_DEPTH`], so that walks may recurse.
    pub depth: u16,
}

/// Height of the tallest expression that is read.
pub const MAX_DEPTH: u16 = 400;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ident<'a> {
    pub name: &'a str,
    pub span: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnaryOp {
    Neg,
    Plus,
    Invert,
    Not,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Mod,
    MatMul,
    Pow,
    BitAnd,
    BitOr,
    BitXor,
    Shl,
    Shr,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    And,
    Or,
    In,
    NotIn,
    Is,
    IsNot,
}

impl BinaryOp {
    pub fn symbol(self) -> &'static str {
        match self {
            BinaryOp::Add => "+",
            BinaryOp::Sub => "-",
            BinaryOp::Mul => "*",
            BinaryOp::Div => "/",
            BinaryOp::FloorDiv => "//",
            BinaryOp::Mod => "%",
            BinaryOp::MatMul => "@",
            BinaryOp::Pow => "**",
            BinaryOp::BitAnd => "&",
            BinaryOp::BitOr => "|",
            BinaryOp::BitXor => "^",
            BinaryOp::Shl => "<<",
            BinaryOp::Shr => ">>",
            BinaryOp::Eq => "==",
            BinaryOp::Ne => "!=",
            BinaryOp::Lt => "<",
            BinaryOp::Le => "<=",
            BinaryOp::Gt => ">",
            BinaryOp::Ge => ">=",
            BinaryOp::And => "and",
            BinaryOp::Or => "or",
            BinaryOp::In => "in",
            BinaryOp::NotIn => "not in",
            BinaryOp::Is => "is",
            BinaryOp::IsNot => "is not",
        }
    }
}

#[derive(Clone, Debug)]
pub enum ExprKind<'a> {
    Name(&'a str),
    /// The digits as written, or as Python made them.
    Int(Cow<'a, str>),
    Float(&'a str),
    Str(String),
    /// `f"a {b}"`: its parts, in which Python's values are not known yet.
    Formatted(Vec<Expr<'a>>),
    /// `{b!r:>8}` among these parts: what is shown, by `r`, `s` or `a`, and the format.
    Field(Box<Expr<'a>>, Option<char>, String),
    Bool(bool),
    None,
    Tuple(Vec<Expr<'a>>),
    List(Vec<Expr<'a>>),
    Dict(Vec<(Expr<'a>, Expr<'a>)>),
    Attribute(Box<Expr<'a>>, Ident<'a>),
    Call(Box<CallExpr<'a>>),
    /// `base[index]`; `a[i, j]` has a tuple as index.
    Subscript(Box<Expr<'a>>, Box<Expr<'a>>),
    Slice(Option<Box<Expr<'a>>>, Option<Box<Expr<'a>>>, Option<Box<Expr<'a>>>),
    Unary(UnaryOp, Box<Expr<'a>>),
    Binary(BinaryOp, Box<Expr<'a>>, Box<Expr<'a>>),
    /// `then if cond else otherwise`
    Ternary {
        cond: Box<Expr<'a>>,
        then: Box<Expr<'a>>,
        otherwise: Box<Expr<'a>>,
    },
    Lambda(Vec<Param<'a>>, Box<Expr<'a>>),
    /// `[element for target in iter if condition ..]`, `{key: element for ..}`, and as the only argument of a call.
    Comprehension(Box<Comprehension<'a>>),
    /// `*fields`, among arguments or elements; what is written out is taken apart by the parser.
    Starred(Box<Expr<'a>>),
    /// `**names`, among arguments; a dictionary that is written out is taken apart by the parser.
    Keywords(Box<Expr<'a>>),
    /// Could not be read; already reported.
    Error,
}

/// A parameter of a lambda.
#[derive(Clone, Debug)]
pub struct Param<'a> {
    pub name: Ident<'a>,
    pub kind: ParamKind,
    pub default: Option<Expr<'a>>,
}

/// How a parameter of a lambda is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// By its position or its name.
    Plain,
    /// By its name alone: behind `*`.
    Named,
    /// `*rest`
    Rest,
    /// `**rest`
    Keywords,
}

#[derive(Clone, Debug)]
pub struct Comprehension<'a> {
    /// Of a dictionary.
    pub key: Option<Expr<'a>>,
    pub element: Expr<'a>,
    pub clauses: Vec<Clause<'a>>,
}

/// `for target in iter if condition ..`
#[derive(Clone, Debug)]
pub struct Clause<'a> {
    pub target: Expr<'a>,
    pub iter: Expr<'a>,
    pub conditions: Vec<Expr<'a>>,
}

#[derive(Clone, Debug)]
pub struct CallExpr<'a> {
    pub func: Expr<'a>,
    pub args: Vec<Expr<'a>>,
    pub keywords: Vec<(Ident<'a>, Expr<'a>)>,
}

impl<'a> CallExpr<'a> {
    pub fn keyword(&self, name: &str) -> Option<&Expr<'a>> {
        self.keywords.iter().find(|(k, _)| k.name == name).map(|(_, v)| v)
    }
    /// Argument by position or by keyword.
    pub fn arg(&self, position: usize, name: &str) -> Option<&Expr<'a>> {
        self.args.get(position).or_else(|| self.keyword(name))
    }
}

impl<'a> Expr<'a> {
    pub fn as_name(&self) -> Option<&'a str> {
        match self.kind {
            ExprKind::Name(n) => Some(n),
            _ => None,
        }
    }
    pub fn as_str(&self) -> Option<&str> {
        match &self.kind {
            ExprKind::Str(s) => Some(s),
            _ => None,
        }
    }
    pub fn as_call(&self) -> Option<&CallExpr<'a>> {
        match &self.kind {
            ExprKind::Call(c) => Some(c),
            _ => None,
        }
    }
    /// `"R.nn.relu"` for a chain of attributes that begins with a name. What TVM's parser calls its dialects beside
    /// their letters (`relax.nn.relu`) is the same. Source: TVM `tvm.script.parser.core.entry`, `_default_globals`.
    pub fn dotted(&self) -> Option<String> {
        match &self.kind {
            ExprKind::Name(n) => Some(n.to_string()),
            ExprKind::Attribute(base, name) => {
                let mut s = match base.as_name() {
                    Some("relax") => "R".to_string(),
                    Some("ir") => "I".to_string(),
                    Some("tir" | "tirx") => "T".to_string(),
                    _ => base.dotted()?,
                };
                s.push('.');
                s.push_str(name.name);
                Some(s)
            }
            _ => None,
        }
    }
    /// The dotted name of what is called, for a call.
    pub fn called(&self) -> Option<String> {
        self.as_call()?.func.dotted()
    }
    /// The elements of a tuple or list.
    pub fn elements(&self) -> Option<&[Expr<'a>]> {
        match &self.kind {
            ExprKind::Tuple(v) | ExprKind::List(v) => Some(v),
            _ => None,
        }
    }
    pub fn is_error(&self) -> bool {
        matches!(self.kind, ExprKind::Error)
    }
    /// Direct sub-expressions.
    pub fn children(&self) -> Vec<&Expr<'a>> {
        match &self.kind {
            ExprKind::Tuple(v) | ExprKind::List(v) | ExprKind::Formatted(v) => v.iter().collect(),
            ExprKind::Dict(v) => v.iter().flat_map(|(k, v)| [k, v]).collect(),
            ExprKind::Attribute(a, _) | ExprKind::Unary(_, a) | ExprKind::Starred(a) | ExprKind::Keywords(a) => vec![a],
            ExprKind::Field(a, ..) => vec![a],
            ExprKind::Lambda(params, a) => params.iter().filter_map(|p| p.default.as_ref()).chain([&**a]).collect(),
            ExprKind::Call(c) => {
                std::iter::once(&c.func).chain(&c.args).chain(c.keywords.iter().map(|(_, v)| v)).collect()
            }
            ExprKind::Subscript(a, b) | ExprKind::Binary(_, a, b) => vec![a, b],
            ExprKind::Slice(a, b, c) => [a, b, c].into_iter().flatten().map(|e| e.as_ref()).collect(),
            ExprKind::Ternary { cond, then, otherwise } => vec![cond, then, otherwise],
            ExprKind::Comprehension(c) => {
                let clauses = c.clauses.iter().flat_map(|c| [&c.target, &c.iter].into_iter().chain(&c.conditions));
                c.key.iter().chain([&c.element]).chain(clauses).collect()
            }
            _ => vec![],
        }
    }
    pub fn describe(&self) -> &'static str {
        match &self.kind {
            ExprKind::Name(_) => "a name",
            ExprKind::Int(_) => "an integer",
            ExprKind::Float(_) => "a number",
            ExprKind::Str(_) => "a string",
            ExprKind::Formatted(_) => "a formatted string",
            ExprKind::Field(..) => "a field of a formatted string",
            ExprKind::Bool(_) => "a bool",
            ExprKind::None => "None",
            ExprKind::Tuple(_) => "a tuple",
            ExprKind::List(_) => "a list",
            ExprKind::Dict(_) => "a dictionary",
            ExprKind::Attribute(..) => "an attribute",
            ExprKind::Call(_) => "a call",
            ExprKind::Subscript(..) => "a subscript",
            ExprKind::Slice(..) => "a slice",
            ExprKind::Unary(..) | ExprKind::Binary(..) => "an expression",
            ExprKind::Ternary { .. } => "a choice of Python's",
            ExprKind::Lambda(..) => "a lambda",
            ExprKind::Comprehension(..) => "a comprehension",
            ExprKind::Starred(..) => "an unpacked value",
            ExprKind::Keywords(..) => "a dictionary that is unpacked",
            ExprKind::Error => "something unreadable",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Stmt<'a> {
    pub kind: StmtKind<'a>,
    /// The whole statement with its blocks.
    pub span: Span,
}

#[derive(Clone, Debug)]
pub enum StmtKind<'a> {
    Expr(Expr<'a>),
    /// `target: annotation = value`; the value is missing in a bare declaration.
    Assign {
        target: Expr<'a>,
        annotation: Option<Expr<'a>>,
        value: Option<Expr<'a>>,
    },
    /// `target += x`, whose value is `target + x`.
    Augment {
        target: Expr<'a>,
        value: Expr<'a>,
    },
    If {
        cond: Expr<'a>,
        then: Vec<Stmt<'a>>,
        otherwise: Vec<Stmt<'a>>,
    },
    For {
        target: Expr<'a>,
        iter: Expr<'a>,
        body: Vec<Stmt<'a>>,
    },
    While {
        cond: Expr<'a>,
        body: Vec<Stmt<'a>>,
    },
    With {
        items: Vec<(Expr<'a>, Option<Expr<'a>>)>,
        body: Vec<Stmt<'a>>,
    },
    Function(Box<FunctionDef<'a>>),
    Class(Box<ClassDef<'a>>),
    Return(Option<Expr<'a>>),
    Assert(Expr<'a>, Option<Expr<'a>>),
    Break,
    Continue,
    Pass,
    /// `import`, `from .. import`: no meaning.
    Import,
    /// Could not be read; already reported. The name it would have bound, if known.
    Broken(Option<&'a str>),
}

#[derive(Clone, Debug)]
pub struct ParamDef<'a> {
    pub name: Ident<'a>,
    pub annotation: Option<Expr<'a>>,
}

#[derive(Clone, Debug)]
pub struct FunctionDef<'a> {
    pub decorators: Vec<Expr<'a>>,
    pub name: Ident<'a>,
    /// PEP 695: `def f[n, m](..)`
    pub type_params: Vec<Ident<'a>>,
    pub params: Vec<ParamDef<'a>>,
    pub returns: Option<Expr<'a>>,
    pub body: Vec<Stmt<'a>>,
    /// From `def` to the colon.
    pub signature: Span,
}

#[derive(Clone, Debug)]
pub struct ClassDef<'a> {
    pub decorators: Vec<Expr<'a>>,
    pub name: Ident<'a>,
    pub body: Vec<Stmt<'a>>,
}
