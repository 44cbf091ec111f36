#include <vector>

namespace outer::inner {

template <typename T, int N = (3 > 2), class U = std::vector<T>>
auto make(T x) -> std::vector<T> {
    used_call<T>(x, R"x(hidden( } )" )x", 1'000, '{');
    return UsedType{x};
}

class Keeper final : public Base<int> {
public:
    explicit Keeper(int x) : a_(x), b_(used_in_members(x)) {
        used_in_constructor(x, "a string that has a } in it");
    }
    Keeper() : a_{1}, b_{2} {
        used_in_another_constructor(1, 2, 3, 4, 5, 6);
    }
    int get() const noexcept {
        return used_in_method(a_, b_, 1, 2, 3, 4, 5, 6);
    }
    bool operator()(int x) const { return used_in_operator(x, a_, b_, 1, 2, 3); }
    std::function<void(int)> hook{nullptr};
    struct Nested {
        void go() { outer::inner::used_in_nested(1, 2, 3, 4, 5, 6); }
    };

private:
    int a_ = 1, b_;
};

struct Made make_struct(int a) {
    return used_in_struct(a, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
}

enum class Color : int { Red, Green };

int values[] = {1, 2, 3};

auto lambda = [](int x) {
    return used_in_lambda(x, 1, 2, 3, 4, 5, 6, 7);
};

int Keeper::get() const {
    try {
        return used_in_try(1);
    } catch (const UsedError& error) {
        return 0;
    }
}

}  // namespace outer::inner
