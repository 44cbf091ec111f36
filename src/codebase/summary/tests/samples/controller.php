<html><?php
declare(strict_types=1);
namespace App\Http;

use Foo\Bar;
use Foo\{Baz, Qux\Deep as D};
use function Foo\helper;
require_once __DIR__ . '/vendor/autoload.php';

const LIMIT = 10, OTHER = 'x';
define('NAMED', 1);

/**
 * Handles it. And more.
 */
#[Route('/x {', methods: ['GET'])]
final class Controller extends Base implements A, B
{
    use SomeTrait, OtherTrait { a as protected b; }

    public const VERSION = '1';
    private const SECRET = [1,
        2];
    public static ?int $count = null;
    protected readonly array $items, $more;
    private $hidden = 'function fake() {';

    public function __construct(
        private readonly Foo $foo,
        protected ?Bar $bar = null,
    ) {
    }

    /** Finds. */
    #[Pure]
    abstract protected static function &find(int|string $id, self ...$rest): ?static;

    private function secret(callable $f = null): void
    {
        $x = new class extends Foo { public function anon() {} };
        $sql = <<<SQL
        class Fake { function fake() {} }
        SQL;
        function nested() {}
    }
}

interface Shape extends Countable { public function area(): float; }
trait Talks { public function talk() { return "x"; } }
enum Suit: string implements HasLabel {
    case Hearts = 'H';
    case Spades = 'S';
    const Wild = self::Spades;
    public function label(): string { return 'x'; }
}

if (!function_exists('helper')) {
    function helper(array $a = [], &$b = 1) { return fn($x) => $x; }
}
abstract class Empty_ {}
?>
<b>class NotThis {}</b>
<?php function after() {} 
