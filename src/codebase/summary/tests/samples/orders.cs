#nullable enable
using System;
using static System.Math;
using Json = Newtonsoft.Json.Linq;
global using System.Linq;

[assembly: InternalsVisibleTo("Tests")]

namespace App.Core
{
    /// <summary>
    /// Keeps <see cref="Order"/>s safe. More.
    /// </summary>
    [Serializable, Obsolete("class Fake {")]
    public abstract partial class Orders<TKey, TValue> : Base<TKey>, IStore<TValue>
        where TKey : notnull, IComparable<TKey>
        where TValue : class, new()
    {
        private const int Max = 10, Min = 1;
        public static readonly string Text = @"public void Fake()
        {
        }";
        internal List<int> _list = new List<int> { 1, 2 };
        public event EventHandler<Args>? Changed, Gone;
        public event EventHandler Custom { add { } remove { } }

        public string Name { get; private set; } = "x";
        public int Count => _list.Count;
        protected virtual int Size
        {
            get { return 1; }
            set { }
        }
        public TValue this[TKey key, int at = 0] { get => default!; }
        int IStore<TValue>.Hidden() => 1;

        public Orders(int a, [NotNull] string b = "}") : base(a) { }
        ~Orders() { }

        [Fact]
        [InlineData(1, "a")]
        public async Task<T?> FindAsync<T>(
            this IEnumerable<T> items,
            Func<T, bool>? where = null,
            params object[] rest)
            where T : struct
        {
            int Local(int x) => x;
            var s = $"{x} class Fake2 {{";
            return default;
        }

#if NET6_0
        public void OnNew() { }
#else
        public void OnOld() { }
#endif

        public static Orders<TKey, TValue> operator +(Orders<TKey, TValue> a, int b) => a;
        public static implicit operator int(Orders<TKey, TValue> a) => 1;
        public static bool operator ==(Orders<TKey, TValue> a, int b) => true;

        #region Nested
        enum Color : byte { Red = 1, [Obsolete] Green, Blue }
        private struct Point { public int X; }
        public delegate int Transform<in T>(T value);
        #endregion
    }

    public record Person(string First, string Last) : Base(First);
    public readonly record struct Pair<A>(A Left, A Right) { public A Both() => Left; }
    interface IStore<out T> { T Get(string key); int Count { get; } static abstract T Zero { get; } }
    file class OnlyHere { }
}
