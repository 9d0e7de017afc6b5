package embedded_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/integration/harness/redistest"
)

// TestAnswersAsRedis: random commands get the same replies as from a redis-server, alone and
// in a script.
//
// It fails if any command replies otherwise than Redis, or changes something else.
func TestAnswersAsRedis(t *testing.T) {
	ours, theirs := protocol2(t, redistest.StartMini(t)), protocol2(t, redistest.Start(t))
	rapid.Check(t, func(t *rapid.T) {
		for _, client := range []*redis.Client{ours, theirs} {
			if err := client.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"command": func(t *rapid.T) { same(t, ours, theirs, commandOf(t)) },
			"script": func(t *rapid.T) {
				how := rapid.SampledFrom([]string{"call", "pcall"}).Draw(t, "how")
				source := fmt.Sprintf(`return redis.%s(unpack(ARGV))`, how)
				command := commandOf(t)
				eval := rapid.SampledFrom([]string{"EVAL", "EVAL_RO"}).Draw(t, "eval")
				same(t, ours, theirs, append([]any{eval, source, 0}, command...))
			},
		})
	})
}

// TestRangesOfNamesAsRedis: ranges of the names of members that have the same score are those of a redis-server.
//
// It fails if an end of a range that is outside counts as inside.
func TestRangesOfNamesAsRedis(t *testing.T) {
	ours, theirs := protocol2(t, redistest.StartMini(t)), protocol2(t, redistest.Start(t))
	name := rapid.StringMatching(`[a-c\x00\xff]{0,3}`)
	rapid.Check(t, func(t *rapid.T) {
		add := []any{"ZADD", "a"}
		for _, member := range rapid.SliceOfN(name, 1, 30).Draw(t, "members") {
			add = append(add, "0", member)
		}
		for _, client := range []*redis.Client{ours, theirs} {
			if err := client.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			if err := client.Do(t.Context(), add...).Err(); err != nil {
				t.Fatal(err)
			}
		}
		bound := rapid.Custom(func(t *rapid.T) string {
			begin := rapid.SampledFrom([]string{"[", "(", "(", "[", "-", "+", "x", ""}).Draw(t, "begin")
			if begin != "[" && begin != "(" {
				return begin
			}
			return begin + name.Draw(t, "bound")
		})
		for range 20 {
			command := []any{rapid.SampledFrom([]string{"ZLEXCOUNT", "ZRANGEBYLEX", "ZREVRANGEBYLEX"}).Draw(t, "command"),
				rapid.SampledFrom([]string{"a", "a", "a", "none"}).Draw(t, "key"), bound.Draw(t, "from"), bound.Draw(t, "to")}
			if command[0] != "ZLEXCOUNT" && rapid.Bool().Draw(t, "limited") {
				command = append(command, "LIMIT", rapid.IntRange(-1, 5).Draw(t, "skip"), rapid.IntRange(-1, 5).Draw(t, "limit"))
			}
			same(t, ours, theirs, command)
		}
	})
}

// protocol2 connects by the protocol of before Redis 6, the only one that the embedded Redis has.
func protocol2(t *testing.T, s redistest.Server) *redis.Client {
	opts := *s.Client.Options()
	opts.Protocol = 2
	client := redis.NewClient(&opts)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// commandOf draws a command. Names are few, so that commands meet.
func commandOf(t *rapid.T) []any {
	key := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key")
	names := rapid.SliceOfN(rapid.SampledFrom([]string{"x", "y", "z", "long name\r\n\x00", ""}), 1, 4).Draw(t, "names")
	score := rapid.SampledFrom([]string{"1", "2", "-3", "1700000000000", "0.5", "inf", "-inf", "(2", "(1", "no", "1e3"})
	scores := func(n int) (drawn []string) {
		for range n {
			drawn = append(drawn, score.Draw(t, "score"))
		}
		return drawn
	}
	rank := rapid.IntRange(-3, 5)
	args := []any{rapid.SampledFrom([]string{
		"DEL", "EXISTS", "TYPE", "UNLINK", "RENAME", "SET", "GET", "DBSIZE", "KEYS", "TTL", "SCAN", "PING", "NONE",
		"HDEL", "HGET", "HGETALL", "HLEN", "HMGET", "HSET", "HKEYS", "HSCAN",
		"ZADD", "ZCARD", "ZCOUNT", "ZLEXCOUNT", "ZRANGE", "ZRANGEBYLEX", "ZRANGEBYSCORE", "ZREM", "ZREVRANGEBYLEX", "ZSCORE",
	}).Draw(t, "command")}
	command := args[0].(string)
	add := func(values ...string) {
		for _, v := range values {
			args = append(args, v)
		}
	}
	switch command {
	case "DBSIZE", "PING":
		return args
	case "KEYS":
		add(rapid.SampledFrom([]string{"*", "a", "?", `\*`, "b*"}).Draw(t, "pattern"))
		return args
	case "SCAN":
		add("0", "COUNT", "100")
		return args
	}
	switch rapid.IntRange(0, 40).Draw(t, "wrong arguments") {
	case 0:
		return args
	case 1:
		add("a", "b", "c", "d", "e", "f")
		return args
	}
	add(key)
	switch command {
	case "RENAME":
		add(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "to"))
	case "SET":
		add("text")
	case "HDEL", "HMGET", "ZREM":
		add(names...)
	case "HGET", "ZSCORE":
		add(names[0])
	case "HSET":
		for _, name := range names {
			add(name, rapid.SampledFrom([]string{"1", "20", "text", ""}).Draw(t, "value"))
		}
	case "HSCAN":
		add("0", "COUNT", "100")
	case "ZADD":
		for _, name := range names {
			add(score.Draw(t, "score"), name)
		}
	case "ZCOUNT":
		add(scores(2)...)
	case "ZLEXCOUNT", "ZRANGEBYLEX", "ZREVRANGEBYLEX": // with bounds that do not depend on scores
		add(rapid.SampledFrom([]string{"-", "-", "no"}).Draw(t, "lowest"), "-")
	case "ZRANGEBYSCORE":
		add(scores(2)...)
		if rapid.Bool().Draw(t, "limited") {
			add("LIMIT", fmt.Sprint(rapid.IntRange(-1, 3).Draw(t, "offset")), fmt.Sprint(rapid.IntRange(-1, 3).Draw(t, "limit")))
		}
		if rapid.Bool().Draw(t, "with scores") {
			add("WITHSCORES")
		}
	case "ZRANGE":
		add(fmt.Sprint(rank.Draw(t, "first")), fmt.Sprint(rank.Draw(t, "last")))
		if rapid.Bool().Draw(t, "with scores") {
			add("WITHSCORES")
		}
	}
	return args
}

// same runs a command on both, and compares the replies.
func same(t *rapid.T, ours, theirs *redis.Client, command []any) {
	t.Helper()
	want, wantErr := theirs.Do(t.Context(), command...).Result()
	got, err := ours.Do(t.Context(), command...).Result()
	if code(err) != code(wantErr) {
		t.Fatalf("%q: %v, want %v", command, err, wantErr)
	}
	if diff := cmp.Diff(sorted(command, want), sorted(command, got)); diff != "" {
		t.Fatalf("%q: (-want +got)\n%s", command, diff)
	}
}

// code is the word with which an error begins.
func code(err error) string {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return fmt.Sprint(err)
	}
	first, _, _ := strings.Cut(err.Error(), " ")
	return first
}

// sorted brings a reply whose order is not promised into one: pairs stay together.
func sorted(command []any, reply any) any {
	name := fmt.Sprint(command[0])
	if name == "EVAL" || name == "EVAL_RO" {
		name = fmt.Sprint(command[3])
	}
	list, isList := reply.([]any)
	switch name {
	case "SCAN", "HSCAN":
		if isList && len(list) == 2 {
			list, _ = list[1].([]any)
		}
	case "HGETALL", "HKEYS", "KEYS":
	default:
		return reply
	}
	width := 1
	if name == "HGETALL" || name == "HSCAN" {
		width = 2
	}
	var entries []string
	for i := 0; i+width <= len(list); i += width {
		entries = append(entries, fmt.Sprintf("%q", list[i:i+width]))
	}
	slices.Sort(entries)
	return entries
}
