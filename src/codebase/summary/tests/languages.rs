//! Checks snapshots of the summary of a difficult sample in each language.

use super::*;

fn signatures(language: Language, names: &[&str]) -> String {
    let of = |name: &&str| signature(language, fixture(language), name);
    names.iter().map(of).collect::<Vec<_>>().join("\n--\n")
}

#[test]
fn bash_file_is_summarized() {
    insta::assert_snapshot!(page(Language::Bash, fixture(Language::Bash)), @r##"
    // Installs things.
    6 ./lib.sh:
    7 $DIR/other.sh:
    28 inner.sh:
    Constant VERSION
    Constant PATH_TO
    Constant OTHER
    Constant LIST
    Constant UPPER
    Function hello // Says hello.
    Function with-dash
    Function both
    Function conditional
    Function otherwise
    Function grouped
    Function in_case
    Alias ll
    "##);
    insta::assert_snapshot!(signatures(Language::Bash, &["with-dash"]), @r##"
    function with-dash
    "##);
}

#[test]
fn c_file_is_summarized() {
    insta::assert_snapshot!(page(Language::C, fixture(Language::C)), @r##"
    3 stdio.h:
    4 util/list.h:
    Macro MAX_SIZE
    Macro MIN
    Macro LONG_MACRO
    Type node // A node. { Field value; Field other; Field next; Field a; Field b; Type inner { Field name }; Field inner; Field compare; Field flags }
    Alias node_t
    Alias node_ptr
    Type point { Field x; Field y }
    Alias point
    Alias ulong_t
    Alias callback
    Enum color { Variant RED; Variant GREEN; Variant BLUE }
    Alias color
    Enum mode { Variant ON; Variant OFF }
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
    Function add // Adds two.
    Function twice -
    Function only_windows
    Function elsewhere
    Function die
    Function exported
    "##);
    insta::assert_snapshot!(signatures(Language::C, &["getter", "node_t"]), @r##"
    char *(*getter(void))(int);
    --
    } node_t, *node_ptr;
    "##);
}

#[test]
fn cpp_file_is_summarized() {
    insta::assert_snapshot!(page(Language::Cpp, fixture(Language::Cpp)), @r##"
    1 vector:
    2 d.h:
    Macro EXPORT_API
    Module outer::inner { Module v1; Constant hidden_here; Interface Small; Type Box // A box. { Field secret_ -; Alias value_type; Field kMax; Method Box; Method Box; Method operator=; Method ~Box; Method convert; Method operator==; Method operator bool; Method operator[]; Method operator(); Method pure; Type Nested { Field a; Method go }; Enum Kind { Variant A; Variant B }; Method debug_only; Method release_only; Field protected_field -; Field value_ -; Field n_ -; Method count - }; Type Plain { Field x; Field y - }; Method ~Box; Method method; Type hash { Method operator() }; Alias Vec; Function identity; Constant raw; Function c_function; Function in_c; Type U { Field i; Field f }; Function trailing }
    Function after_macro
    Type Marked { Method m }
    "##);
    insta::assert_snapshot!(signatures(Language::Cpp, &["after_macro", "Marked", "convert"]), @r##"
    EXPORT_API int after_macro(int x)
    --
    class EXPORT_API Marked : public Base
    --
    template <typename U>
            requires Small<U>
        auto convert(U&& u) const& -> decltype(u.x())
    "##);
}

#[test]
fn csharp_file_is_summarized() {
    insta::assert_snapshot!(page(Language::CSharp, fixture(Language::CSharp)), @r##"
    2 System:
    3 System.Math: *
    4 Newtonsoft.Json.Linq:
    5 System.Linq:
    Module App.Core { Type Orders // Keeps <see cref="Order"/>s safe. { Constant Max -; Constant Min -; Constant Text; Field _list; Field Changed; Field Gone; Field Custom; Field Name; Field Count; Field Size; Method this; Method Hidden; Method Orders; Method ~Orders -; Method FindAsync; Method OnNew; Method OnOld; Method operator +; Method operator int; Method operator ==; Enum Color - { Variant Red -; Variant Green -; Variant Blue - }; Type Point - { Field X - }; Type Transform }; Type Person; Type Pair { Method Both }; Interface IStore { Method Get; Field Count; Field Zero }; Type OnlyHere - }
    "##);
    insta::assert_snapshot!(signatures(Language::CSharp, &["Name"]), @r##"
    public string Name { get; private set; } = "x";
    "##);
}

#[test]
fn go_file_is_summarized() {
    insta::assert_snapshot!(page(Language::Go, fixture(Language::Go)), @r##"
    // Package room holds things.
    9 fmt:
    11 net/http:
    13 strings: *
    14 embed:
    15 example.com/a/b:
    Constant Limit // Limit is how many.
    Constant A // A is the first.
    Constant B
    Constant c -
    Constant D
    Constant ErrGone
    Constant table -
    Constant x -
    Constant Y
    Type Thing // Thing is one. { Field Mutex; Field Base; Field Name // Name is its name.; Field alias - // Name is its name.; Field next -; Field Do; Field Opts }
    Interface Reader // Reader reads. { Field Closer; Method Read; Field ~int | ~string - }
    Type Handler
    Alias Alias
    Method Go // Go goes.
    Function größe -
    Function Map
    Function assembly -
    "##);
    insta::assert_snapshot!(signatures(Language::Go, &["Thing", "Reader", "Go", "table", "Name", "Opts", "Limit"]), @r##"
    type Thing[K comparable, V any] struct
    --
    Reader[T any] interface
    --
    func (t *Thing[K, V]) Go(
    	ctx context.Context, // why
    	names ...string,
    ) (count int, err error)
    --
    table
    --
    Name, alias string `json:"name"`
    --
    Opts struct {
    		Deep bool
    	}
    --
    const Limit = 3
    "##);
}

#[test]
fn java_file_is_summarized() {
    insta::assert_snapshot!(page(Language::Java, fixture(Language::Java)), @r##"
    // What this package is for.
    6 java.util: *
    7 java.lang.Math: max
    8 java.io.IOException: IOException
    Module com.example.app // What this package is for.
    Type Orders // Keeps orders. { Constant MAX; Constant MIN; Constant TABLE; Field items -; Field more -; Field text; Method Orders // Makes one.; Method find; Method count; Method hidden -; Type Local // Nested. { Field a; Type Pair { Method Pair } }; Enum Color { Variant RED // Red.; Variant GREEN; Variant BLUE; Field text -; Method Color; Method code }; Interface Ann { Method value; Method numbers; Constant LIMIT }; Interface Secret - { Method go -; Method x -; Method y - } }
    Interface Store { Method get }
    "##);
    insta::assert_snapshot!(signatures(Language::Java, &["find"]), @r##"
    @Override
        @Transactional(isolation = Isolation.DEFAULT,
                       readOnly = true)
        public <R extends T> Optional<R>
                find(final String name,
                     Function<? super T, ? extends R> map)
                throws IOException
    "##);
}

#[test]
fn javascript_file_is_summarized() {
    insta::assert_snapshot!(page(Language::JavaScript, fixture(Language::JavaScript)), @r##"
    4 fs:
    5 path: join resolve
    6 many: only
    Function add // Adds.
    Function stream
    Type Queue { Field size; Method handler; Method put // Puts it.; Method length; Method #secret -; Method [Symbol.iterator] }
    Method take -
    Function make
    Constant version
    Function twice
    Constant a -
    Function b -
    "##);
    insta::assert_snapshot!(signatures(Language::JavaScript, &["take"]), @r##"
    Queue.prototype.take = function (count)
    "##);
}

#[test]
fn php_file_is_summarized() {
    insta::assert_snapshot!(page(Language::Php, fixture(Language::Php)), @r##"
    5 Foo\Bar: Bar
    6 Foo\Baz: Baz
    6 Foo\Qux\Deep: Deep
    7 Foo: helper
    8 ./vendor/autoload.php:
    Module App\Http
    Constant LIMIT
    Constant OTHER
    Constant NAMED
    Type Controller // Handles it. { Constant VERSION; Constant SECRET -; Field count; Field items; Field more; Field hidden -; Method __construct; Method find // Finds.; Method secret - }
    Interface Shape { Method area }
    Interface Talks { Method talk }
    Enum Suit { Variant Hearts; Variant Spades; Constant Wild; Method label }
    Function helper
    Type Empty_
    Function after
    "##);
    insta::assert_snapshot!(signatures(Language::Php, &["find"]), @r##"
    #[Pure]
        abstract protected static function &find(int|string $id, self ...$rest): ?static;
    "##);
}

#[test]
fn python_file_is_summarized() {
    insta::assert_snapshot!(page(Language::Python, fixture(Language::Python)), @r##"
    // The room.
    7 __future__: annotations
    9 os:
    9 sys:
    10 collections.abc:
    11 .: sibling
    12 ..models: Thing Other
    16 .deep.er: *
    19 typing: Any
    67 .late: late
    81 fast:
    Constant Any
    Constant LIMIT // How many.
    Constant _hidden -
    Constant a
    Constant b
    Alias Pair
    Type Thing // A thing. { Field x; Field y; Field __slots__; Type Inner { Field z }; Method __init__ // Makes one of them.; Method name; Method get; Method get; Method newer }
    Enum Color { Variant RED; Variant GREEN }
    Interface Reads { Method read }
    Function fallback
    Function _private - // Is private.
    Function generic
    "##);
    insta::assert_snapshot!(signatures(Language::Python, &["Thing", "__init__", "name", "LIMIT", "_hidden", "get"]), @r##"
    @register(
        "name",
        other=lambda x: x,
    )
    @final  # why: not
    class Thing(Base[int], metaclass=Meta, key="class Fake: pass")
    --
    def __init__(self, x: int = 3, *args: "Any", key: str = ":", **kw) -> None
    --
    @property
        def name(self) -> str
    --
    LIMIT: Final[int] = 3
    --
    _hidden
    --
    @overload
        async def get(self, key: Literal["a"], /) -> int
    "##);
}

#[test]
fn ruby_file_is_summarized() {
    insta::assert_snapshot!(page(Language::Ruby, fixture(Language::Ruby)), @r##"
    // What this file is.
    6 json:
    7 lib/thing:
    8 foo:
    Module Outer { Constant VERSION; Constant LIST; Type Thing // A thing. { Field a; Field b; Field c; Type Pair { Method sum }; Method old; Method <<; Method initialize // Makes it.; Method build; Method ==; Method []; Method empty?; Method name=; Method dynamic; Extension self { Method meta; Method hidden_meta - }; Method conditional; Method later -; Method inline -; Method guarded -; Constant SECRET; Field d -; Method hidden -; Method shown }; Type Empty; Type Error; Method helper }
    Type Outer::Other::Deep { Method deep }
    Function top_level
    "##);
    insta::assert_snapshot!(signatures(Language::Ruby, &["inline"]), @r##"
    private def inline(x)
    "##);
}

#[test]
fn rust_file_is_summarized() {
    insta::assert_snapshot!(page(Language::Rust, fixture(Language::Rust)), @r##"
    // A room for things.
    5 std::collections: BTreeMap BTreeSet
    5 std::fmt: self Write
    5 std::sync: *
    6 crate: limits
    7 serde:
    69 inner: Hidden
    94 crate: spawn
    Type Thing // One thing, e.g. this one. { Field count // How many.; Field items; Field r#type - }
    Type Pair
    Type Unit -
    Type Bits { Field a -; Field b - }
    Enum Shape // Block doc. { Variant Circle // Round.; Variant Square; Variant None }
    Constant SHORT
    Constant LONG -
    Constant COUNT -
    Alias Result
    Interface Speak { Constant LOUD; Alias Word; Method say // Says it.; Method twice }
    Extension Thing - { Method new; Method private - }
    Extension Vec { Method twice }
    Extension Unit
    Module inner { Function deep; Module deeper - { Type Down } }
    Module elsewhere -
    Function printf
    Function callback
    Macro make
    Function spawned // In a macro.
    Function größe
    Function tabbed
    "##);
    insta::assert_snapshot!(signatures(Language::Rust, &["Thing", "new", "say", "LONG", "SHORT", "Word", "größe"]), @r##"
    #[derive(Debug, Clone)] // trailing
    #[serde(
        rename_all = "kebab-case",
    )]
    pub struct Thing<'a, T: Iterator<Item = u8> = Empty, const N: usize = { 1 + 1 }>
    where
        T: Clone, // why
        for<'b> &'b T: Copy,
    --
    #[must_use]
        pub(crate) const unsafe fn new(
            count: u8, // of things
            items: impl FnOnce(u8) -> [T; 2],
        ) -> Self
        where
            T: Default,
    --
    async fn say(&self, word: Self::Word<'_>) -> Result<()>;
    --
    const LONG: &[&str]
    --
    pub const SHORT: &str = "fn fake() {}";
    --
    type Word<'w>: AsRef<str> where Self: 'w;
    --
    pub async fn größe(größe: u8) -> impl Future<Output = u8>
    "##);
}

#[test]
fn typescript_file_is_summarized() {
    insta::assert_snapshot!(page(Language::TypeScript, fixture(Language::TypeScript)), @r##"
    // The room.
    6 react: default useState Ref
    7 node:path: *
    8 ./side.css:
    9 ./options: Options
    10 fs:
    11 ./helper: helper default
    12 ./all: *
    Type Thing // One thing. { Field count // How many.; Field cache -; Field #secret -; Method onClick; Method constructor; Method name; Method walk -; Method open; Field [] }
    Interface One { Field a; Method b; Method (); Method new; Field [] }
    Alias Union
    Alias Shape - { Field width }
    Enum Color { Variant Red; Variant Green; Variant Dark Blue }
    Function over
    Function over
    Function over
    Function arrow
    Function plain
    Constant big
    Constant one -
    Function two -
    Constant left
    Constant renamed
    Interface Window - { Field app }
    Function ambient
    Module virtual:x { Constant value }
    Module Outer.Inner - { Constant deep; Constant hidden - }
    Function default
    Function größe
    Constant text -
    "##);
    insta::assert_snapshot!(signatures(Language::TypeScript, &["Thing", "walk", "onClick", "arrow", "Union", "big", "renamed", "Outer.Inner"]), @r##"
    @Component({
      selector: 'app',
    })
    export default abstract class Thing<T extends object = {}> extends Base<T> implements One, Two
    --
    @Log({ deep: true })
      protected async *walk<K>(
        key: K, // why
        { a, b }: { a: number; b?: string } = { a: 1 },
      ): AsyncGenerator<K>
    --
    onClick = async (event: Event): Promise<void> =>
    --
    export const arrow = async <T,>(x: T): Promise<T> =>
    --
    export type Union =
      | 'a'
      | { kind: 'b'; value: number }
    --
    export const big
    --
    export const { left, right: renamed } = pair
    --
    namespace Outer.Inner
    "##);
}
