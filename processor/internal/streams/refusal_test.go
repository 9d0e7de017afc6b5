package streams

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/sink/store"
)

// TestG12_ARefusalNamesTheCommandLine: a refusal that a person can give up names the exact flags, and says first to
// save Redis where the next start removes documents from it. One that nobody can give up names no command.
func TestG12_ARefusalNamesTheCommandLine(t *testing.T) {
	for _, tt := range []struct {
		accept  Loss
		removes bool
		says    []string
	}{
		{"", false, nil},
		{LostLogEnd, true, []string{"stop lapse, save Redis (redis-cli --rdb FILE, or BGSAVE) and run lapse begin-anew " +
			"--accept-lost-log-end --redis-is-saved (", "the next start removes what Redis holds"}},
		{LostLogBeginning, false, []string{"stop lapse and run lapse begin-anew --accept-lost-log-beginning (",
			"Redis holds nothing"}},
		{LostDocuments, true, []string{"run lapse begin-anew --accept-lost-documents --redis-is-saved ("}},
		{LostLogMessages, false, []string{"go on without them: stop lapse and run lapse begin-anew " +
			"--accept-lost-log-messages ("}},
		{LostEvents, false, []string{"give up these events for good", "run lapse begin-anew --accept-lost-events ("}},
	} {
		r := Refuse(ErrLogBehind, "restore the log", "it ends at sequence %d", 7)
		r.Accept, r.Removes = tt.accept, tt.removes
		text := r.Error()
		if !strings.HasPrefix(text, "the log ends before what was applied: it ends at sequence 7: restore the log") ||
			tt.accept == "" && strings.Contains(text, "begin-anew") {
			t.Errorf("%s: %s", tt.accept, text)
		}
		for _, part := range tt.says {
			if !strings.Contains(text, part) {
				t.Errorf("%s does not say %q: %s", tt.accept, part, text)
			}
		}
	}
}

// TestRefusalIsFound: errors.As finds a refusal however it is wrapped, and errors.Is its kind and what its reason
// wraps. The kind is said once.
func TestRefusalIsFound(t *testing.T) {
	reason := errors.New("reason")
	err := fmt.Errorf("shard 1: %w", Refuse(ErrRefused, "", "%w: x: %w", store.ErrDamaged, reason))
	if r := AsRefusal(err); r == nil || !errors.Is(err, ErrRefused) || !errors.Is(err, store.ErrDamaged) ||
		!errors.Is(err, reason) || errors.Is(err, ErrLogBehind) {
		t.Errorf("%#v, %v", r, err)
	}
	if AsRefusal(reason) != nil || AsRefusal(nil) != nil {
		t.Error("a failure is taken for a refusal")
	}
	if text := Refuse(store.ErrForeign, "", "key: %w: x", store.ErrForeign).Error(); strings.Count(text,
		store.ErrForeign.Error()) != 1 {
		t.Error(text)
	}
}

// TestRefusalAtTheStart: a start ends with a stream or a Redis that is set otherwise than lapse needs it, and with no
// other refusal: reads go on beside those.
func TestRefusalAtTheStart(t *testing.T) {
	for _, tt := range []struct {
		err  error
		ends bool
	}{
		{mismatch("LOG", "its storage is memory"), true},
		{stranger("EVENTS", "its events are from another log"), false},
		{Refuse(store.ErrServer, "", "it is Redis 6"), true},
		{Refuse(ErrConfigsBehind, "", "x"), false},
		{Refuse(ErrLogChanged, "", "x"), false},
		{Refuse(store.ErrForeign, "", "x"), false},
	} {
		if got := AsRefusal(tt.err).EndsStart(); got != tt.ends {
			t.Errorf("%v ends the start: %v, want %v", tt.err, got, tt.ends)
		}
	}
	if err := stranger("EVENTS", "x"); !errors.Is(err, ErrMismatch) || !errors.Is(err, ErrStranger) ||
		errors.Is(mismatch("LOG", "x"), ErrStranger) {
		t.Error(err)
	}
}
