using System;

namespace Bodies
{
    public class Keeper<T> : Base, IUsed where T : class
    {
        #region it's only a region
        private int[] numbers = { 1, 2, 3 };

        public string Name { get; private set; } = "hidden(}";

        public int Count
        {
            get { return UsedInGetter(numbers, 1, 2, 3, 4, 5, 6); }
            set
            {
                UsedInSetter(value, @"a "" hidden( } \", $"{value} {{ hidden( ");
            }
        }

        public int this[int at]
        {
            get => numbers[at];
        }

        public Keeper(int a) : base(a)
        {
            UsedInConstructor(a, '}', """ hidden( } " """);
        }

        public R Find<R>(Func<T, R> map) where R : new()
        {
            void Local() { UsedInLocal(); }
#if DEBUG
            if (map == null) { throw new UsedException(); }
#endif
            return map(default);
        }

        public int Short() => 1;

        public static bool operator ==(Keeper<T> a, Keeper<T> b)
        {
            return UsedInOperator(a, b) && a.numbers.Length == 3;
        }

        public event Action Changed
        {
            add { UsedInEvent(value, 1, 2, 3, 4, 5, 6, 7, 8, 9); }
            remove { }
        }
        #endregion
    }

    public record Point(int X, int Y)
    {
        public int Sum() { return X + Y + UsedInRecord(X, Y, 1, 2, 3); }
    }

    enum Color { Red = (1), Green }
}
