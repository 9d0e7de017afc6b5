package embedded_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink/embedded"
)

const password = "correct horse"

// login is AUTH with the password, as a client sends it.
var login = fmt.Sprintf("*2\r\n$4\r\nAUTH\r\n$%d\r\n%s\r\n", len(password), password)

// opened is the embedded Redis with an open port, and a client within the process.
func opened(t testing.TB) (*embedded.Server, *redis.Client) {
	t.Helper()
	s := embedded.New(nil)
	t.Cleanup(s.Close)
	if err := s.Listen("127.0.0.1:0", password); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Dialer: s.Dial, MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	return s, client
}

// guarded is a redis-server with the same password.
func guarded(t *testing.T) *redis.Options {
	t.Helper()
	client := redistest.Start(t).Client
	if err := client.ConfigSet(t.Context(), "requirepass", password).Err(); err != nil {
		t.Fatal(err)
	}
	return client.Options()
}

// say sends bytes to an address, ends its own side unless the server is to end the connection, and
// returns all that comes back.
func say(t testing.TB, network, address, text string, serverEnds bool) string {
	t.Helper()
	c, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	// Both may fail: the server may have closed the connection. What it said before is read all the same.
	_, _ = io.WriteString(c, text)
	if !serverEnds {
		_ = c.(interface{ CloseWrite() error }).CloseWrite()
	}
	got, err := io.ReadAll(c)
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		t.Errorf("%.60q: the connection is still open", text)
	}
	return string(got)
}

// TestWhatIsTooMuch: counts and lengths that are over a limit, or are none, get the error of Redis and
// the end of the connection; and no memory is taken for them.
//
// It fails, with the whole test program, if a length is added to a position before it is compared.
func TestWhatIsTooMuch(t *testing.T) {
	s, client := opened(t)
	real := guarded(t)
	for _, c := range []struct{ sent, want string }{
		{"*1\r\n$9223372036854775807\r\n", "-ERR Protocol error: invalid bulk length\r\n"},
		{"*9223372036854775807\r\n", "-ERR Protocol error: invalid multibulk length\r\n"},
		{"*99999999999999999999\r\n", "-ERR Protocol error: invalid multibulk length\r\n"},
		{"*-99999999999999999999\r\n", "-ERR Protocol error: invalid multibulk length\r\n"},
		{"*11\r\n", "-ERR Protocol error: unauthenticated multibulk length\r\n"},
		{"*1\r\n$16385\r\n", "-ERR Protocol error: unauthenticated bulk length\r\n"},
		{"*2\r\n$4\r\nAUTH\r\n$-1\r\n", "-ERR Protocol error: invalid bulk length\r\n"},
		{"*1\r\n$99999999999999999999\r\n", "-ERR Protocol error: invalid bulk length\r\n"},
		{"*x\r\n", "-ERR Protocol error: invalid multibulk length\r\n"},
		{"*\r\n", "-ERR Protocol error: invalid multibulk length\r\n"},
		{"*+1\r\n", "-ERR Protocol error: invalid multibulk length\r\n"},
		{"*01\r\n", "-ERR Protocol error: invalid multibulk length\r\n"},
		{"*1\r\n:1\r\n", "-ERR Protocol error: expected '$', got ':'\r\n"},
		// the first three are empty
		{"*0\r\n*-5\r\n\r\n*11\r\n", "-ERR Protocol error: unauthenticated multibulk length\r\n"},
		{strings.Repeat("a", 70_000), "-ERR Protocol error: too big inline request\r\n"},
		{"*" + strings.Repeat("1", 70_000), "-ERR Protocol error: too big mbulk count string\r\n"},
		{"*1\r\n$" + strings.Repeat("1", 70_000), "-ERR Protocol error: too big bulk count string\r\n"},
		{login + "*1\r\n$536870913\r\n", "+OK\r\n-ERR Protocol error: invalid bulk length\r\n"},
		{login + "*11\r\n" + strings.Repeat("$0\r\n\r\n", 11) + "*x\r\n", "+OK\r\n-ERR unknown command ''"},
	} {
		got := say(t, "tcp", s.Addr(), c.sent, true)
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%.60q: %q, want %q", c.sent, got, c.want)
		}
		if got := say(t, real.Network, real.Addr, c.sent, true); !strings.HasPrefix(got, c.want) {
			t.Errorf("%.60q: Redis answers %q, want %q", c.sent, got, c.want)
		}
	}
	for _, text := range []string{"*1048576\r\n$536870912\r\n", "*2\r\n$3\r\nGET\r\n$536870900\r\n"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if got := say(t, "tcp", s.Addr(), login+text, false); got != "+OK\r\n" {
			t.Errorf("%q: %q", text, got)
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20 {
			t.Errorf("%q: %d bytes of memory for what has not come", text, took)
		}
	}
	if got := say(t, "tcp", s.Addr(), login+"*1048577\r\n", true); got != "+OK\r\n-ERR Protocol error: invalid "+
		"multibulk length\r\n" {
		t.Errorf("too many words: %q", got)
	}
	if got := client.Get(t.Context(), "k").Val(); got != "v" {
		t.Errorf("afterwards: %q", got)
	}
}

// TestWebPages: a form that a web page sends to the port changes nothing, even if its lines know the
// password, and its connection is closed.
//
// It fails if POST and Host: are commands like others.
func TestWebPages(t *testing.T) {
	s, client := opened(t)
	form := "AUTH " + strings.ReplaceAll(password, " ", "_") +
		"\r\nEVAL redis.call('SET','k','page') 0\r\nSET k page\r\n" + login + "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\npage\r\n"
	resp, err := http.Post("http://"+s.Addr()+"/", "text/plain", strings.NewReader(form))
	if err == nil {
		_ = resp.Body.Close()
		t.Errorf("it answers HTTP: %s", resp.Status)
	}
	for _, first := range []string{"POST / HTTP/1.1", "post / HTTP/1.1", "PUT / HTTP/1.1\r\nHost: localhost",
		"GET / HTTP/1.1\r\nhost: localhost"} {
		for _, before := range []string{"", login} {
			got := say(t, "tcp", s.Addr(), before+first+"\r\n\r\n"+form, true)
			got = strings.ReplaceAll(strings.TrimPrefix(got, "+OK\r\n"), "-NOAUTH Authentication required.\r\n", "")
			if strings.Contains(got, "OK") {
				t.Errorf("%s: %q", first, got)
			}
			if got := client.Get(t.Context(), "k").Val(); got != "v" {
				t.Fatalf("%s: the page has written %q", first, got)
			}
		}
	}
}

// TestPassword: without the password every command is refused, and nothing changes; with it, by each
// way to give it, commands run. The connection within the process needs none.
//
// It fails if any command runs before AUTH.
func TestPassword(t *testing.T) {
	s, client := opened(t)
	real := guarded(t)
	for _, c := range []struct{ command, want string }{
		{"PING", "-NOAUTH "}, {"SET k other", "-NOAUTH "}, {"EVAL return(1) 0", "-NOAUTH "}, {"SCRIPT FLUSH",
			"-NOAUTH "}, {"FLUSHALL", "-NOAUTH "},
		{"INFO", "-NOAUTH "}, {"COMMAND", "-NOAUTH "}, {"CLIENT ID", "-NOAUTH "}, {"SELECT 0",
			"-NOAUTH "}, {"CONFIG GET requirepass", "-NOAUTH "},
		{"AUTH wrong", "-WRONGPASS "}, {"AUTH default wrong", "-WRONGPASS "}, {"AUTH other correct", "-WRONGPASS "}, {"AUTH",
			"-ERR wrong number of arguments for 'auth' command"},
		{"HELLO", "-NOAUTH "}, {"HELLO 2", "-NOAUTH "}, {"HELLO 4", "-NOPROTO "}, {"HELLO 2 AUTH default wrong",
			"-WRONGPASS "}, {"HELLO 2 AUTH default", "-ERR Syntax error in HELLO option 'AUTH'"},
		{"QUIT", "+OK"},
	} {
		if got := say(t, "tcp", s.Addr(), c.command+"\r\n", false); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", c.command, got, c.want)
		}
		if got := say(t, real.Network, real.Addr, c.command+"\r\n", false); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: Redis answers %q, want %q", c.command, got, c.want)
		}
	}
	if got := client.Get(t.Context(), "k").Val(); got != "v" {
		t.Errorf("a client without the password has written %q", got)
	}
	for _, opts := range []*redis.Options{{Password: password}, {Username: "default", Password: password},
		{Password: password, Protocol: 2}} {
		opts.Addr = s.Addr()
		outside := redis.NewClient(opts)
		if got, err := outside.Get(t.Context(), "k").Result(); got != "v" {
			t.Errorf("user %q, protocol %d: %q, %v", opts.Username, opts.Protocol, got, err)
		}
		_ = outside.Close()
	}
	hello := fmt.Sprintf("*7\r\n$5\r\nHELLO\r\n$1\r\n2\r\n$4\r\nAUTH\r\n$7\r\ndefault\r\n$%d\r\n%s\r\n$7\r\nSETNAME\r\n$1\r\nx\r\n", len(password), password)
	if got := say(t, "tcp", s.Addr(), hello+"GET k\r\n", false); !strings.HasPrefix(got, "*8\r\n$6\r\nserver\r\n") ||
		!strings.HasSuffix(got, "$1\r\nv\r\n") {
		t.Errorf("HELLO: %q", got)
	}
	if err := embedded.New(nil).Listen("127.0.0.1:0", ""); err == nil {
		t.Error("it listens without a password")
	}
}

// TestManyConnections: connections from outside have a limit, which those within the process do not
// share; and there is room again once one ends.
func TestManyConnections(t *testing.T) {
	s, client := opened(t)
	const limit = 64
	var conns []net.Conn
	for range limit {
		c, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if _, err := io.WriteString(c, "PING\r\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(c).ReadString('\n'); !strings.HasPrefix(line, "-NOAUTH") {
			t.Fatalf("%q, %v", line, err)
		}
		conns = append(conns, c)
	}
	if got := say(t, "tcp", s.Addr(), "", true); got != "-ERR max number of clients reached\r\n" {
		t.Errorf("one too many: %q", got)
	}
	if err := client.Conn().Ping(t.Context()).Err(); err != nil {
		t.Errorf("within the process: %v", err)
	}
	_ = conns[0].Close()
	redistest.WaitFor(t, "there is room again", func() bool {
		return strings.HasPrefix(say(t, "tcp", s.Addr(), "PING\r\n", false), "-NOAUTH")
	})
}

// TestNesting: what is nested very deep, and a list that is in itself, gets an error. It fails, with
// the whole test program, because a stack is full.
func TestNesting(t *testing.T) {
	_, client := opened(t)
	for source, want := range map[string]string{
		"local t = {} t[1] = t return t":                       "reached lua stack limit",
		"return " + strings.Repeat("{", 2_000_000):             "is too long: at most 65536 are allowed",
		"return " + strings.Repeat("(", 60_000) + "1":          "Error compiling script",
		"return " + strings.Repeat("not ", 15_000) + "false":   "redis: nil",
		"local function f() return 1 + f() end return f()":     "stack overflow",
		"local t = {} for i = 1, 500 do t = {t} end return #t": "",
	} {
		err := client.Eval(t.Context(), source, nil).Err()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want %q", source, err, want)
		}
	}
}

var known = regexp.MustCompile(`-ERR (unknown command|wrong number of arguments) [^\n]*\n`)

var web = regexp.MustCompile(`(?i)post|host:`)

// TestProtocolAsRedis: pieces of the protocol in any order get the replies of a redis-server. No
// client gives the password, so every reply is one of the protocol.
func TestProtocolAsRedis(t *testing.T) {
	s, _ := opened(t)
	real := guarded(t)
	piece := rapid.OneOf(
		rapid.SampledFrom([]string{"PING\r\n", "\r\n", " PING  x \r\n", "*1\r\n$4\r\nPING\r\n",
			"*2\r\n$4\r\nECHO\r\n$3\r\n\r\n*\r\n", "*0\r\n", "*-1\r\n", "QUIT\r\n", "POST / HTTP/1.1\r\n", "Host: a\r\n",
			"*1\r\n$5\r\nhOsT:\r\n", "AUTH x\r\n", "HELLO 2\r\n", "*10\r\n", "*11\r\n", "*3\r\n", "$4\r\n", "$16384\r\n",
			"$16385\r\n", "$0\r\n\r\n", "$-1\r\n", "AUTH\r\n", ":1\r\n", "GET / HTTP/1.1\r\n"}),
		rapid.Map(rapid.IntRange(-20, 20_000), func(n int) string { return fmt.Sprintf("*1\r\n$%d\r\n", n) }),
		rapid.Map(rapid.Int(), func(n int) string { return fmt.Sprintf("*%d\r\n", n) }),
		rapid.Map(rapid.SliceOfN(rapid.StringMatching(`[a-zA-Z:*$0-9]{0,20}`), 1, 12), func(words []string) string {
			text := fmt.Sprintf("*%d\r\n", len(words))
			for _, w := range words {
				text += fmt.Sprintf("$%d\r\n%s\r\n", len(w), w)
			}
			return text
		}),
	)
	rapid.Check(t, func(rt *rapid.T) {
		sent := strings.Join(rapid.SliceOfN(piece, 1, 6).Draw(rt, "pieces"), "")
		ours, theirs := say(t, "tcp", s.Addr(), sent, false), say(t, real.Network, real.Addr, sent, false)
		// Redis tells everybody which commands it has.
		const noauth = "-NOAUTH Authentication required.\r\n"
		ours, theirs = known.ReplaceAllString(ours, noauth), known.ReplaceAllString(theirs, noauth)
		theirs = strings.ReplaceAll(theirs, "HELLO <proto> AUTH", "HELLO AUTH") // Redis 8 words it so
		// Redis may not send the replies to commands before it
		if web.MatchString(sent) {
			ours = ours[:min(len(ours), len(theirs))]
		}
		if ours != theirs {
			rt.Fatalf("%q: %q, want %q", sent, ours, theirs)
		}
	})
}
