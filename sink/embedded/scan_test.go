package embedded_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness/redistest"
)

// TestScanInPages: a scan returns as many fields as it is asked for, and each field that is
// there from its beginning to its end exactly once, while others come and go, also very many.
//
// It fails if a cursor is a position that others can move.
func TestScanInPages(t *testing.T) {
	const stay, page, comePerPage = 5_000, 64, 200
	client := redistest.StartMini(t).Client
	set := func(name string, from, to int) {
		pairs := make([]any, 0, 2*(to-from))
		for i := from; i < to; i++ {
			pairs = append(pairs, fmt.Sprint(name, i), "v")
		}
		if err := client.HSet(t.Context(), "h", pairs...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("stay", 0, stay)
	set("go", 0, stay)
	found, cursor, pages := map[string]int{}, uint64(0), 0
	for {
		fields, next, err := client.HScan(t.Context(), "h", cursor, "", page).Result()
		if err != nil {
			t.Fatal(err)
		}
		if n := len(fields) / 2; n != page && next != 0 {
			t.Errorf("a page of %d fields, want %d", n, page)
		}
		for i := 0; i < len(fields); i += 2 {
			found[fields[i]]++
		}
		if cursor = next; cursor == 0 {
			break
		}
		set("come", pages*comePerPage, (pages+1)*comePerPage)
		for i := pages * comePerPage; i < min(stay, (pages+1)*comePerPage); i++ {
			client.HDel(t.Context(), "h", fmt.Sprint("go", i))
		}
		set("stay", pages, pages+1) // as a document that is written again
		pages++
	}
	for name, n := range found {
		if n > 1 {
			t.Errorf("%s was returned %d times", name, n)
		}
	}
	for i := range stay {
		if name := fmt.Sprint("stay", i); found[name] == 0 {
			t.Errorf("%s was not returned", name)
		}
	}
}

// TestScripts: a script sees what Redis shows it, and leaves nothing behind for the next.
func TestScripts(t *testing.T) {
	test := func(t *testing.T, s redistest.Server) {
		for source, want := range map[string]string{
			`return {1, 2.9, 'x', true, false, nil, 5}`:                        "[1 2 x 1 <nil>]",
			`return #ARGV .. KEYS[1]`:                                          "2k",
			`return redis.call('TYPE', 'none').ok`:                             "none",
			`return redis.call('HMGET', 'none', 'a', 'b')[2] == false`:         "1",
			`return redis.pcall('HSET', 'h').err`:                              "ERR ",
			`return {err = 'GONE it is'}`:                                      "GONE it is",
			`return {ok = 'FINE'}`:                                             "FINE",
			`redis.call('SET', 'text', 'x') return redis.call('HLEN', 'text')`: "WRONGTYPE",
			`redis.call('NONE')`:                                               "ERR ",
			`left = 1`:                                                         "ERR ",
			`return left`:                                                      "ERR ",
			`return os.execute('true')`:                                        "ERR ",
			`return dofile`:                                                    "ERR ",
			`error('so')`:                                                      "ERR ",
			`return (`:                                                         "ERR Error compiling script",
			`local t = {} for i = 1, 7000 do t[i] = i end return select('#', unpack(t))`:                 "7000",
			`return string.byte(ARGV[2], 1) .. ' ' .. #ARGV[2] .. ' ' .. tostring(ARGV[2] == '\255\0b')`: "255 3 true",
		} {
			v, err := s.Client.Eval(t.Context(), source, []string{"k"}, "a", "\xff\x00b").Result()
			got := fmt.Sprint(v)
			if err != nil {
				got = err.Error()
			}
			if !strings.HasPrefix(got, want) {
				t.Errorf("%s: %q, want %q", source, got, want)
			}
		}
		if err := s.Client.EvalSha(t.Context(), strings.Repeat("0", 40), nil).Err(); err == nil ||
			!strings.HasPrefix(err.Error(), "NOSCRIPT") {
			t.Errorf("an unknown script: %v", err)
		}
	}
	t.Run("embedded", func(t *testing.T) { test(t, redistest.StartMini(t)) })
	t.Run("redis", func(t *testing.T) { test(t, redistest.Start(t)) })
}
