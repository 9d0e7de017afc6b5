package fold

import "testing"

// TestOutOfTurn: the messages of the stream of configurations count in their order and each once. A message of the log
// itself always counts.
func TestOutOfTurn(t *testing.T) {
	p := Progress{Configured: 4}
	for source, want := range map[uint64]bool{0: false, 3: true, 4: true, 5: false, 6: true} {
		if got := p.OutOfTurn(&Message{Position: Position{Source: source}}); got != want {
			t.Errorf("message %d after 4 is out of turn: %v, want %v", source, got, want)
		}
	}
}

// TestStampAt: a message that has an older stamp, or none, leaves that of the progress.
func TestStampAt(t *testing.T) {
	at := func(seq uint64) Position { return Position{Seq: seq, Stamp: int64(seq) * 1000} }
	p := Progress{Stamp: at(5).Evidence()}
	for seq, want := range map[uint64]uint64{4: 5, 5: 5, 6: 6} {
		if got := p.StampAt(at(seq)).Seq; got != want {
			t.Errorf("the stamp at %d is of %d, want %d", seq, got, want)
		}
	}
}
