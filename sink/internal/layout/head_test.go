package layout

import (
	"errors"
	"io"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/harness/redistest"
)

// TestHead: the head of a reply has the state of the shard as it stands, the server's clock and, if a script asks for
// one, what there is of a collection.
func TestHead(t *testing.T) {
	script := NewHeadScript(`return {head(KEYS[1], KEYS[2], ARGV[1], ARGV[1] and KEYS[3])}`)
	server := redistest.StartMini(t)
	ctx, client := t.Context(), server.Client
	server.Mini.SetTime(time.UnixMicro(1_790_000_000_123_999))
	k := NewKeys("lapse", 0, 1)
	keys := []string{k.State(), k.Config(), k.Docs("orders")}
	check := func(name string, want Head, args ...any) {
		t.Helper()
		reply, err := NewRunner(client, 1).Run(ctx, script, keys, args...)
		if diff := cmp.Diff(want, reply.Head(0)); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	check("an empty server", Head{Clock: 1_790_000_000_123, Size: "0 0 0"}, "orders")
	for key, fields := range map[string][]string{
		k.State(): {"version", "v", "format", "f", "shards", "3", "log", "l", "offset", "5", "watermark", "6", "rebuild", "r",
			"configs", "7", "size:orders", "3 2 1", "size:carts", "9 9 9"},
		k.Config():       {"orders", "{}", "carts", "x"},
		k.Docs("orders"): {"a", "1", "b", "2", "c", "3"},
	} {
		if err := client.HSet(ctx, key, fields).Err(); err != nil {
			t.Fatal(err)
		}
	}
	want := Head{Clock: 1_790_000_000_123, Initialised: true, Version: "v", Format: "f", Shards: 3, Log: "l", Offset: 5,
		Watermark: 6, Rebuild: "r", Configs: 2, ConfigsLeft: 7, Size: "0 0 0"}
	check("without a collection", want)
	want.Config, want.Documents, want.Size = "{}", 3, "3 2 1"
	check("with one", want, "orders")
	for text, shards := range map[any]int{"1": 1, "64": 64, "0": 0, "65": 0, "": 0, "x": 0, nil: 0, int64(3): 0} {
		if got, ok := ParseShards(text); ok != (shards > 0) || ok && got != shards {
			t.Errorf("%v is %d shards, %t, want %d", text, got, ok, shards)
		}
	}
}

// TestReply: a value of a reply that is missing, or of another kind, reads as the zero value.
func TestReply(t *testing.T) {
	r := Reply{int64(7), "8", "x", nil, []any{"a", "1", "b", "2", "c"}, "1.5e3"}
	for i, want := range []struct {
		number int64
		text   string
		has    bool
		length int
		score  int64
		scored bool
	}{{7, "", false, 0, 0, false}, {8, "8", true, 0, 8, true}, {0, "x", true, 0, 0, false}, {0, "", false, 0, 0, false},
		{0, "", false, 5, 0, false}, {0, "1.5e3", true, 0, 1500, true}, {0, "", false, 0, 0, false}} {
		score, scored := r.Score(i)
		if r.Int(i) != want.number || r.Str(i) != want.text || r.Has(i) != want.has || len(r.List(i)) != want.length ||
			score != want.score || scored != want.scored {
			t.Errorf("%d reads as %d, %q, %t, %v, %d, %t, want %+v", i, r.Int(i), r.Str(i), r.Has(i), r.List(i), score, scored,
				want)
		}
	}
	if got := r.List(4).Fields(); !maps.Equal(got, map[string]string{"a": "1", "b": "2"}) {
		t.Errorf("the fields are %v", got)
	}
}

// answer is an error that Redis answers.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

// TestForeign: that a key has another type is ErrForeign; every other error stays what it is.
func TestForeign(t *testing.T) {
	if err := Foreign(nil); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		err     error
		foreign bool
		says    string
	}{
		{answer("WRONGTYPE Operation against a key"), true, "not stored by this lapse: WRONGTYPE Operation against a key"},
		{answer("ERR Error running script: WRONGTYPE x"), true, "not stored by this lapse: ERR Error running script: WRONGTYPE x"},
		{answer("TRYAGAIN Multiple keys"), false, "the slot of its keys is being moved to another master of the cluster: " +
			"TRYAGAIN Multiple keys"},
		{answer("ERR Script attempted to access a non local key in a cluster node"), false,
			"the slot of its keys is being moved to another master of the cluster: " +
				"ERR Script attempted to access a non local key in a cluster node"},
		{answer("ERR unknown"), false, "ERR unknown"},
		{io.EOF, false, "EOF"},
		{errors.New("WRONGTYPE of a program"), false, "WRONGTYPE of a program"},
	} {
		got := Foreign(c.err)
		if got.Error() != c.says || !errors.Is(got, c.err) || errors.Is(got, ErrForeign) != c.foreign {
			t.Errorf("%v becomes %v, want %s", c.err, got, c.says)
		}
	}
	client := redistest.StartMiniredis(t).Client
	if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	read := redis.NewScript(`return redis.call('HGETALL', KEYS[1])`)
	if _, err := NewRunner(client, 1).Run(t.Context(), read, []string{"k"}); !errors.Is(err, ErrForeign) {
		t.Errorf("a key of another type: %v, want ErrForeign", err)
	}
}
