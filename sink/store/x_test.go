package store_test
import ("testing";"github.com/seed18712806/lapse/integration/harness/redistest")
func BenchmarkX(b *testing.B) {
	r := newRig(b, redistest.StartMini(b), 1, far)
	r.fill(20_000)
	at := 20_000
	for b.Loop() { r.Commit(0, nil, r.puts(at, at+500)); at += 500 }
}
