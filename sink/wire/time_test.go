package wire

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestTimeIsWrittenWithMilliseconds: a time is written as package time would, with three digits of the second.
func TestTimeIsWrittenWithMilliseconds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.Int64Range(-62_135_596_800_000, 253_402_300_799_999).Draw(t, "ms") // the years 1 to 9999
		if got, want := Time(ms).String(), time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00"); got != want {
			t.Errorf("%d is written %s, want %s", ms, got, want)
		}
	})
}

func BenchmarkTime(b *testing.B) {
	buf := make([]byte, 0, 32)
	for i := range b.N {
		buf = Time(1_700_000_000_000 + int64(i)).append(buf[:0])
	}
}
