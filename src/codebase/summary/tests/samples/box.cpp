#include <vector>
#include "d.h"
#define EXPORT_API __attribute__((visibility("default")))

namespace outer::inner {
inline namespace v1 {}
namespace {
int hidden_here = 1;
}

template <typename T, class... Args>
concept Small = sizeof(T) < 8;

/// A box. For things.
template <typename T, int N = 3>
class Box final : public Base<T>, private virtual Other {
    int secret_ = 0;
public:
    using value_type = T;
    static constexpr int kMax = 10;
    explicit Box(T value) noexcept : value_(std::move(value)), n_{1} { }
    Box(const Box&) = delete;
    Box& operator=(Box&& other) = default;
    virtual ~Box();
    template <typename U>
        requires Small<U>
    auto convert(U&& u) const& -> decltype(u.x()) { return u.x(); }
    bool operator==(const Box& o) const { return true; }
    operator bool() const { return true; }
    T& operator[](size_t i);
    void operator()(int a, int b = 2);
    friend std::ostream& operator<<(std::ostream& os, const Box& b);
    virtual void pure(int x = 1) = 0;
    struct Nested { int a; void go(); };
    enum class Kind : unsigned char { A, B = 2 };
#ifdef DEBUG
    void debug_only();
#else
    void release_only();
#endif
protected:
    int protected_field;
private:
    T value_; int n_;
    static int count(int);
};

struct Plain { int x{1}; private: int y; };

template <typename T, int N>
Box<T, N>::~Box() { auto s = "class Fake {"; }

int Plain::method(const std::string& s,
                  std::vector<int> v = {1, 2}) const
{
    struct Local { int z; };
    auto f = [](int a) { return a; };
    return 0;
}

template <> struct hash<Plain> { size_t operator()(const Plain&) const; };
template <typename T> using Vec = std::vector<T>;
template <typename T> T identity(T t) { return t; }
const char* raw = R"(class Raw { void f(); };)";
extern "C" int c_function(int);
extern "C" { void in_c(void); }
union U { int i; float f; };
auto trailing(int x) -> int;
}  // namespace
EXPORT_API int after_macro(int x) { return x; }
class EXPORT_API Marked : public Base { public: int m(); };
