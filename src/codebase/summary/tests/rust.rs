use super::*;

pub(super) const TEXT: &str = r#####"//! A room for
//! things. It has more.
#![allow(dead_code)]

use std::{collections::{BTreeMap, BTreeSet as Set}, fmt::{self, Write as _}, sync::*};
pub(crate) use crate::limits;
use ::serde;

/// One thing, e.g. this one. Not two.
#[derive(Debug, Clone)] // trailing
#[serde(
    rename_all = "kebab-case",
)]
pub struct Thing<'a, T: Iterator<Item = u8> = Empty, const N: usize = { 1 + 1 }>
where
    T: Clone, // why
    for<'b> &'b T: Copy,
{
    /// How many.
    pub count: Option<Box<dyn Fn(&str) -> u8 + Send + 'a>>, // not of the next
    pub(super) items: [T; N],
    r#type: String,
}

pub struct Pair(pub u8, String);
struct Unit;
pub union Bits { a: u32, b: f32 }

/** Block doc.
 * More. */
#[repr(u8)]
pub enum Shape {
    /// Round.
    Circle { radius: f64 },
    Square(f64) ,
    None = 3,
}

pub const SHORT: &str = "fn fake() {}";
const LONG: &[&str] = &[
    "pub struct Fake { x: u8 }",
    "two",
];
static mut COUNT: u32 = 0;
pub type Result<T, E = Error> = std::result::Result<T, E>;

#[async_trait]
pub trait Speak<T = ()>: Send
where
    T: Sized,
{
    const LOUD: bool = true;
    type Word<'w>: AsRef<str> where Self: 'w;
    /// Says it.
    async fn say(&self, word: Self::Word<'_>) -> Result<()>;
    fn twice(&self) -> u8 { fn local() {} 2 }
}

impl<'a, T> Thing<'a, T> where T: Iterator<Item = u8> {
    #[must_use]
    pub(crate) const unsafe fn new(
        count: u8, // of things
        items: impl FnOnce(u8) -> [T; 2],
    ) -> Self
    where
        T: Default,
    {
        struct Local;
        use inner::Hidden;
        helper(count).then_some(Other::make::<Unit>())
    }
    fn private(self: Box<Self>) {}
}
impl<T> Speak<T> for Vec<&'_ mut T> { fn twice(&self) -> u8 { 1 } }
unsafe impl Send for Unit {}

pub mod inner {
    //! Inside.
    pub fn deep() {}
    mod deeper { pub(in crate::a) struct Down; }
}
mod elsewhere;

extern "C" { pub fn printf(format: *const u8, ...) -> i32; }
pub extern "C" fn callback() {}

#[macro_export]
macro_rules! make { ($x:ident) => { fn $x() {} }; }

cfg_rt! {
    /// In a macro.
    #[inline]
    pub fn spawned<T>(task: T) -> u8 { 1 }
    pub use crate::spawn;
}
bitflags! { struct Flags: u32 { const A = 1; } }
pub async fn größe(größe: u8) -> impl Future<Output = u8> { async move { größe } }
	pub fn tabbed() { let text = "pub fn fake() {}"; }
"#####;

#[test]
fn items() {
    insta::assert_snapshot!(outline(Language::Rust, TEXT), @r"
    Type Thing
      Field count
      Field items
      Field r#type -
    Type Pair
    Type Unit -
    Type Bits
      Field a -
      Field b -
    Enum Shape
      Variant Circle
      Variant Square
      Variant None
    Constant SHORT
    Constant LONG -
    Constant COUNT -
    Alias Result
    Interface Speak
      Constant LOUD
      Alias Word
      Method say
      Method twice
    Extension Thing -
      Method new
      Method private -
    Extension Vec
      Method twice
    Extension Unit
    Module inner
      Function deep
      Module deeper -
        Type Down
    Module elsewhere -
    Function printf
    Function callback
    Macro make
    Function spawned
    Function größe
    Function tabbed
    ");
}

#[test]
fn signatures() {
    let of = |name| signature(Language::Rust, TEXT, name);
    insta::assert_snapshot!(of("Thing"), @r#"
    #[derive(Debug, Clone)] // trailing
    #[serde(
        rename_all = "kebab-case",
    )]
    pub struct Thing<'a, T: Iterator<Item = u8> = Empty, const N: usize = { 1 + 1 }>
    where
        T: Clone, // why
        for<'b> &'b T: Copy,
    "#);
    insta::assert_snapshot!(of("new"), @r"
    #[must_use]
        pub(crate) const unsafe fn new(
            count: u8, // of things
            items: impl FnOnce(u8) -> [T; 2],
        ) -> Self
        where
            T: Default,
    ");
    insta::assert_snapshot!(of("say"), @"async fn say(&self, word: Self::Word<'_>) -> Result<()>;");
    insta::assert_snapshot!(of("LONG"), @"const LONG: &[&str]");
    insta::assert_snapshot!(of("SHORT"), @r#"pub const SHORT: &str = "fn fake() {}";"#);
    insta::assert_snapshot!(of("Word"), @"type Word<'w>: AsRef<str> where Self: 'w;");
    insta::assert_snapshot!(of("größe"), @"pub async fn größe(größe: u8) -> impl Future<Output = u8>");
}

#[test]
fn imports_and_docs() {
    insta::assert_snapshot!(imports(Language::Rust, TEXT), @r"
    5 std::collections: BTreeMap BTreeSet
    5 std::fmt: self Write
    5 std::sync: *
    6 crate: limits
    7 serde: 
    69 inner: Hidden
    94 crate: spawn
    ");
    insta::assert_snapshot!(docs(Language::Rust, TEXT), @r"
    A room for things.
    Thing: One thing, e.g. this one.
    count: How many.
    Shape: Block doc.
    Circle: Round.
    say: Says it.
    spawned: In a macro.
    ");
}

#[test]
fn names_used() {
    let (_, uses) = read(Language::Rust, TEXT);
    insta::assert_snapshot!(uses.join(" "), @"AsRef Box Clone Copy Debug Default Empty Error Flags Fn FnOnce Future Item Iterator Local Option Other Output Self Send Sized String allow derive helper local repr result serde std then_some");
}
