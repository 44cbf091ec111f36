//! Java, C, C++, C#, Ruby, PHP and Bash: texts with what is hard to read in them, and all that is found there.

use super::*;

pub(super) const JAVA: &str = include_str!("samples/orders.java");
pub(super) const CSHARP: &str = include_str!("samples/orders.cs");
pub(super) const C: &str = include_str!("samples/node.c");
pub(super) const CPP: &str = include_str!("samples/box.cpp");
pub(super) const RUBY: &str = include_str!("samples/thing.rb");
pub(super) const PHP: &str = include_str!("samples/controller.php");
pub(super) const BASH: &str = include_str!("samples/install.sh");

#[test]
fn java() {
    insta::assert_snapshot!(outline(Language::Java, JAVA), @r#"
    Module com.example.app
    Type Orders
      Constant MAX
      Constant MIN
      Constant TABLE
      Field items -
      Field more -
      Field text
      Method Orders
      Method find
      Method count
      Method hidden -
      Type Local
        Field a
        Type Pair
          Method Pair
      Enum Color
        Variant RED
        Variant GREEN
        Variant BLUE
        Field text -
        Method Color
        Method code
      Interface Ann
        Method value
        Method numbers
        Constant LIMIT
      Interface Secret -
        Method go -
        Method x -
        Method y -
    Interface Store
      Method get
    "#);
    insta::assert_snapshot!(imports(Language::Java, JAVA), @r#"
    6 java.util: *
    7 java.lang.Math: max
    8 java.io.IOException: IOException
    "#);
    insta::assert_snapshot!(docs(Language::Java, JAVA), @r#"
    What this package is for.
    com.example.app: What this package is for.
    Orders: Keeps orders.
    Orders: Makes one.
    Local: Nested.
    RED: Red.
    "#);
}

#[test]
fn c_sharp() {
    insta::assert_snapshot!(outline(Language::CSharp, CSHARP), @r#"
    Module App.Core
      Type Orders
        Constant Max -
        Constant Min -
        Constant Text
        Field _list
        Field Changed
        Field Gone
        Field Custom
        Field Name
        Field Count
        Field Size
        Method this
        Method Hidden
        Method Orders
        Method ~Orders -
        Method FindAsync
        Method OnNew
        Method OnOld
        Method operator +
        Method operator int
        Method operator ==
        Enum Color -
          Variant Red -
          Variant Green -
          Variant Blue -
        Type Point -
          Field X -
        Type Transform
      Type Person
      Type Pair
        Method Both
      Interface IStore
        Method Get
        Field Count
        Field Zero
      Type OnlyHere -
    "#);
    insta::assert_snapshot!(imports(Language::CSharp, CSHARP), @r#"
    2 System: 
    3 System.Math: *
    4 Newtonsoft.Json.Linq: 
    5 System.Linq: 
    "#);
    insta::assert_snapshot!(docs(Language::CSharp, CSHARP), @r#"
    Orders: Keeps <see cref="Order"/>s safe.
    "#);
}

#[test]
fn c_alone() {
    insta::assert_snapshot!(outline(Language::C, C), @r#"
    Macro MAX_SIZE
    Macro MIN
    Macro LONG_MACRO
    Type node
      Field value
      Field other
      Field next
      Field a
      Field b
      Type inner
        Field name
      Field inner
      Field compare
      Field flags
    Alias node_t
    Alias node_ptr
    Type point
      Field x
      Field y
    Alias point
    Alias ulong_t
    Alias callback
    Enum color
      Variant RED
      Variant GREEN
      Variant BLUE
    Alias color
    Enum mode
      Variant ON
      Variant OFF
    Variant ANON_A
    Variant ANON_B
    Constant global_count
    Constant names -
    Constant a
    Constant b
    Constant c
    Constant handler
    Function prototype
    Function hidden -
    Function getter
    Function add
    Function twice -
    Function only_windows
    Function elsewhere
    Function die
    Function exported
    "#);
    insta::assert_snapshot!(imports(Language::C, C), @r#"
    3 stdio.h: 
    4 util/list.h: 
    "#);
    insta::assert_snapshot!(docs(Language::C, C), @r#"
    node: A node.
    add: Adds two.
    "#);
}

#[test]
fn c_plus_plus() {
    insta::assert_snapshot!(outline(Language::Cpp, CPP), @r#"
    Macro EXPORT_API
    Module outer::inner
      Module v1
      Constant hidden_here
      Interface Small
      Type Box
        Field secret_ -
        Alias value_type
        Field kMax
        Method Box
        Method Box
        Method operator=
        Method ~Box
        Method convert
        Method operator==
        Method operator bool
        Method operator[]
        Method operator()
        Method pure
        Type Nested
          Field a
          Method go
        Enum Kind
          Variant A
          Variant B
        Method debug_only
        Method release_only
        Field protected_field -
        Field value_ -
        Field n_ -
        Method count -
      Type Plain
        Field x
        Field y -
      Method ~Box
      Method method
      Type hash
        Method operator()
      Alias Vec
      Function identity
      Constant raw
      Function c_function
      Function in_c
      Type U
        Field i
        Field f
      Function trailing
    Function after_macro
    Type Marked
      Method m
    "#);
    insta::assert_snapshot!(imports(Language::Cpp, CPP), @r#"
    1 vector: 
    2 d.h: 
    "#);
    insta::assert_snapshot!(docs(Language::Cpp, CPP), @r#"
    Box: A box.
    "#);
}

#[test]
fn ruby() {
    insta::assert_snapshot!(outline(Language::Ruby, RUBY), @r#"
    Module Outer
      Constant VERSION
      Constant LIST
      Type Thing
        Field a
        Field b
        Field c
        Type Pair
          Method sum
        Method old
        Method <<
        Method initialize
        Method build
        Method ==
        Method []
        Method empty?
        Method name=
        Method dynamic
        Extension self
          Method meta
          Method hidden_meta -
        Method conditional
        Method later -
        Method inline -
        Method guarded -
        Constant SECRET
        Field d -
        Method hidden -
        Method shown
      Type Empty
      Type Error
      Method helper
    Type Outer::Other::Deep
      Method deep
    Function top_level
    "#);
    insta::assert_snapshot!(imports(Language::Ruby, RUBY), @r#"
    6 json: 
    7 lib/thing: 
    8 foo: 
    "#);
    insta::assert_snapshot!(docs(Language::Ruby, RUBY), @r#"
    What this file is.
    Thing: A thing.
    initialize: Makes it.
    "#);
}

#[test]
fn php() {
    insta::assert_snapshot!(outline(Language::Php, PHP), @r#"
    Module App\Http
    Constant LIMIT
    Constant OTHER
    Constant NAMED
    Type Controller
      Constant VERSION
      Constant SECRET -
      Field count
      Field items
      Field more
      Field hidden -
      Method __construct
      Method find
      Method secret -
    Interface Shape
      Method area
    Interface Talks
      Method talk
    Enum Suit
      Variant Hearts
      Variant Spades
      Constant Wild
      Method label
    Function helper
    Type Empty_
    Function after
    "#);
    insta::assert_snapshot!(imports(Language::Php, PHP), @r#"
    5 Foo\Bar: Bar
    6 Foo\Baz: Baz
    6 Foo\Qux\Deep: Deep
    7 Foo: helper
    8 ./vendor/autoload.php: 
    "#);
    insta::assert_snapshot!(docs(Language::Php, PHP), @r#"
    Controller: Handles it.
    find: Finds.
    "#);
}

#[test]
fn bash() {
    insta::assert_snapshot!(outline(Language::Bash, BASH), @r#"
    Constant VERSION
    Constant PATH_TO
    Constant OTHER
    Constant LIST
    Constant UPPER
    Function hello
    Function with-dash
    Function both
    Function conditional
    Function otherwise
    Function grouped
    Function in_case
    Alias ll
    "#);
    insta::assert_snapshot!(imports(Language::Bash, BASH), @r#"
    6 ./lib.sh: 
    7 $DIR/other.sh: 
    28 inner.sh: 
    "#);
    insta::assert_snapshot!(docs(Language::Bash, BASH), @r#"
    Installs things.
    hello: Says hello.
    "#);
}

#[test]
fn signatures() {
    let of = signature;
    insta::assert_snapshot!(of(Language::Java, JAVA, "find"), @r"
    @Override
        @Transactional(isolation = Isolation.DEFAULT,
                       readOnly = true)
        public <R extends T> Optional<R>
                find(final String name,
                     Function<? super T, ? extends R> map)
                throws IOException
    ");
    insta::assert_snapshot!(of(Language::Cpp, CPP, "after_macro"), @"EXPORT_API int after_macro(int x)");
    insta::assert_snapshot!(of(Language::Cpp, CPP, "Marked"), @"class EXPORT_API Marked : public Base");
    insta::assert_snapshot!(of(Language::Cpp, CPP, "convert"), @r"
    template <typename U>
            requires Small<U>
        auto convert(U&& u) const& -> decltype(u.x())
    ");
    insta::assert_snapshot!(of(Language::C, C, "getter"), @"char *(*getter(void))(int);");
    insta::assert_snapshot!(of(Language::C, C, "node_t"), @"} node_t, *node_ptr;");
    insta::assert_snapshot!(of(Language::CSharp, CSHARP, "Name"), @r#"public string Name { get; private set; } = "x";"#);
    insta::assert_snapshot!(of(Language::Ruby, RUBY, "inline"), @"private def inline(x)");
    insta::assert_snapshot!(of(Language::Php, PHP, "find"), @r"
    #[Pure]
        abstract protected static function &find(int|string $id, self ...$rest): ?static;
    ");
    insta::assert_snapshot!(of(Language::Bash, BASH, "with-dash"), @"function with-dash");
}

#[test]
fn an_annotation_before_the_dots_is_no_fault() {
    let text = "class A {\n    void f(String @Nullable ... names) {}\n}\n";
    let summary = summarize(Language::Java, text);
    assert!(!summary.partial);
    assert_eq!(signature(Language::Java, text, "f"), "void f(String @Nullable ... names)");
}

#[test]
fn what_does_not_parse_costs_only_itself() {
    let text = "int before(void);\nint broken(int a,) { } }\nint between(int a) { return 1; }\nstruct s { int a; };\n";
    let summary = summarize(Language::C, text);
    assert_exact(text, &summary);
    assert!(summary.partial);
    let names: Vec<&str> = all(&summary).into_iter().map(|item| item.name.as_str()).collect();
    assert_eq!(names, ["before", "between", "s", "a"]);
}
