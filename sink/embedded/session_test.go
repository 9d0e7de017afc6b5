package embedded

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const secret = "the password"

// login is AUTH with the password, as a client sends it.
var login = fmt.Sprintf("*2\r\n$4\r\nAUTH\r\n$%d\r\n%s\r\n", len(secret), secret)

// TestTimeLimits: a client that does not give the password in time is cut off, whatever it sends
// meanwhile; with the password, one that sends nothing, and one that does not take its replies.
//
// It fails without any of the three deadlines.
func TestTimeLimits(t *testing.T) {
	for name, c := range map[string]struct {
		first string
		every time.Duration // after which it sends a command again; 0: never
		want  time.Duration
	}{
		"without the password":            {"", 0, loginTimeout},
		"commands without the password":   {"", time.Second, loginTimeout},
		"nothing after the password":      {login, 0, idleTimeout},
		"the password after some seconds": {"PING\r\n" + login, 0, idleTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := New(nil)
				defer s.Close()
				client, server := pipe()
				defer func() { _ = client.Close() }()
				s.start(server, secret)
				began := time.Now()
				if _, err := io.WriteString(client, c.first); err != nil {
					t.Fatal(err)
				}
				var sending sync.WaitGroup
				defer sending.Wait()
				if c.every > 0 {
					sending.Go(func() {
						for {
							if _, err := io.WriteString(client, "PING\r\n"); err != nil {
								return
							}
							time.Sleep(c.every)
						}
					})
				}
				if _, err := io.ReadAll(client); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took != c.want {
					t.Errorf("it was cut off after %v, want %v", took, c.want)
				}
			})
		})
	}
	t.Run("replies that nobody takes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := New(nil)
			defer s.Close()
			client, server := net.Pipe() // which holds no bytes
			defer func() { _ = client.Close() }()
			s.start(server, secret)
			began := time.Now()
			_, _ = io.WriteString(client, "PING\r\n")
			s.running.Wait()
			if took := time.Since(began); took != replyTimeout {
				t.Errorf("it was cut off after %v, want %v", took, replyTimeout)
			}
		})
	})
	t.Run("within the process", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := New(nil)
			defer s.Close()
			client, err := s.Dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = client.Close() }()
			time.Sleep(24 * time.Hour)
			if got := ask(t, client, "PING\r\n"); got != "+PONG\r\n" {
				t.Errorf("after a day: %q", got)
			}
		})
	})
}

// ask sends a command, and returns a reply of one line.
func ask(t *testing.T, c net.Conn, command string) string {
	t.Helper()
	if _, err := io.WriteString(c, command); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4096)
	n, err := c.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

// TestAPanicEndsOneConnection: a command that panics ends its connection alone, is logged, and
// leaves the server at work.
//
// It fails, with the whole test program, if nobody recovers.
func TestAPanicEndsOneConnection(t *testing.T) {
	commands["PANIC"] = command{1, func(*database, []string) any { panic("here") }}
	defer delete(commands, "PANIC")
	var log bytes.Buffer
	s := New(slog.New(slog.NewTextHandler(&log, nil)))
	defer s.Close()
	for range 2 {
		c, err := s.Dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		if got := ask(t, c, "PING\r\n"); got != "+PONG\r\n" {
			t.Errorf("%q", got)
		}
		if got := ask(t, c, "PANIC\r\n"); got != "-ERR internal error: here\r\n" {
			t.Errorf("%q", got)
		}
		if rest, err := io.ReadAll(c); err != nil || len(rest) > 0 {
			t.Errorf("the connection goes on: %q, %v", rest, err)
		}
	}
	if text := log.String(); !strings.Contains(text, "panic=here") || !strings.Contains(text, "session.go") {
		t.Errorf("the log: %s", text)
	}
}

// TestPipe: a connection within the process is one as [net.Conn] promises: an end that is closed,
// deadlines, and a reader that is slow.
func TestPipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := pipe()
		sent := bytes.Repeat([]byte("0123456789"), mostUnread/5) // twice what waits
		done := make(chan error, 1)
		go func() {
			_, err := client.Write(sent)
			_ = client.Close()
			done <- err
		}()
		synctest.Wait()
		if n := len(server.(*end).in.data); n != mostUnread {
			t.Errorf("%d bytes wait, want %d", n, mostUnread)
		}
		got := make([]byte, 10)
		if _, err := io.ReadFull(server, got); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if in := server.(*end).in; len(in.data)-in.from != mostUnread {
			t.Errorf("after the reader has read 10, %d bytes wait, want %d", len(in.data)-in.from, mostUnread)
		}
		rest, err := io.ReadAll(server)
		if got = append(got, rest...); err != nil || !bytes.Equal(got, sent) || <-done != nil {
			t.Errorf("%d bytes of %d: %v", len(got), len(sent), err)
		}
		if _, err := server.Write([]byte("x")); err != io.ErrClosedPipe {
			t.Errorf("to a closed end: %v", err)
		}
		if _, err := client.Read(nil); err != net.ErrClosed {
			t.Errorf("from one's own closed end: %v", err)
		}
		if _, err := client.Write([]byte("x")); err != net.ErrClosed {
			t.Errorf("to one's own closed end: %v", err)
		}

		client, server = pipe()
		began := time.Now()
		_ = client.SetDeadline(began.Add(time.Second))
		for what, do := range map[string]func([]byte) (int, error){"read": client.Read, "write": client.Write} {
			_, err := do(make([]byte, 2*mostUnread))
			if late, ok := err.(net.Error); !ok || !late.Timeout() || time.Since(began) != time.Second {
				t.Errorf("%s: %v after %v", what, err, time.Since(began))
			}
		}
		_ = client.SetDeadline(time.Time{})
		go func() {
			time.Sleep(time.Second)
			_ = client.SetReadDeadline(time.Now())
		}()
		if _, err := client.Read(make([]byte, 1)); err == nil || time.Since(began) != 2*time.Second {
			t.Errorf("a deadline that comes while it reads: %v after %v", err, time.Since(began))
		}
		_ = server.Close()
	})
}

// TestCommandIsCutOff: a command whose end does not come is none, wherever the client stops.
func TestCommandIsCutOff(t *testing.T) {
	for _, command := range []string{"PING x\r\n", "*2\r\n$4\r\nECHO\r\n$1\r\nx\r\n",
		"*1\r\n$20000\r\n" + strings.Repeat("x", 20_000) + "\r\n", strings.Repeat("x", 20_000) + "\r\n"} {
		for n := 0; n < len(command); n++ {
			if n == 100 {
				n = len(command) - 2
			}
			words, err := readCommand(bufio.NewReaderSize(strings.NewReader(command[:n]), readBuffer), knownClient)
			if err != io.EOF || words != nil {
				t.Errorf("%d bytes of %.20q: %.20q, %v", n, command, words, err)
			}
		}
		words, err := readCommand(bufio.NewReaderSize(strings.NewReader(command), readBuffer), knownClient)
		if err != nil || len(words) == 0 {
			t.Errorf("%.20q: %.20q, %v", command, words, err)
		}
	}
}

// FuzzCommands: whatever a client sends, the server neither panics nor hangs, and sends whole replies
// alone; and without the password nothing changes, and every reply is OK or an error.
//
//	go test ./sink/embedded -run - -fuzz Commands -fuzztime 10m -parallel 1
func FuzzCommands(f *testing.F) {
	for _, sent := range []string{
		"*1\r\n$9223372036854775807\r\n", "*9223372036854775807\r\n", "*-1\r\n", "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "PING\r\n",
		"ping x\n",
		"POST / HTTP/1.1\r\nHost: x\r\n\r\nSET k other\r\n", "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nother\r\n", "HELLO 2 " +
			"AUTH default x SETNAME y\r\n", "AUTH x\r\n", "QUIT\r\n",
		"HSET h a 1 b 2\r\nHSCAN h 0 COUNT 1\r\nHGETALL h\r\n", "ZADD z 1 a inf b\r\nZRANGEBYSCORE z (1 +inf LIMIT 0 -1 " +
			"WITHSCORES\r\nZRANGE z -3 5\r\n",
		"SCAN 0 MATCH * COUNT 10\r\nKEYS ?*\r\nTYPE k\r\nRENAME k l\r\nINFO server\r\nTIME\r\nCOMMAND " +
			"DOCS\r\n", "*2\r\n$4\r\nPING\r\n$20000\r\n" + strings.Repeat("x", 20000) + "\r\n",
	} {
		f.Add(false, []byte(sent))
		f.Add(true, []byte(sent))
	}
	var log bytes.Buffer
	s := New(slog.New(slog.NewTextHandler(&log, nil)))
	f.Cleanup(s.Close)
	f.Fuzz(func(t *testing.T, known bool, sent []byte) {
		upper := bytes.ToUpper(sent)
		if bytes.Contains(upper, []byte("EVAL")) || bytes.Contains(sent, []byte(secret)) {
			return // a script may run for ever, and a client with the password may run it
		}
		s.run("FLUSHALL", nil)
		s.run("SET", []string{"k", "v"})
		client, server := pipe()
		defer func() { _ = client.Close() }()
		s.start(server, secret)
		if known {
			if got := ask(t, client, login); got != "+OK\r\n" {
				t.Fatalf("AUTH: %q", got)
			}
		}
		if _, err := client.Write(sent); err != nil && err != io.ErrClosedPipe {
			t.Fatal(err)
		}
		out := client.(*end).out
		_ = out.change(func() { out.ended = true })
		_ = client.SetReadDeadline(time.Now().Add(10 * time.Second))
		got, err := io.ReadAll(client)
		if err != nil {
			t.Fatalf("it hangs: %v", err)
		}
		if log.Len() > 0 {
			t.Fatal(log.String())
		}
		for rest := bufio.NewReader(bytes.NewReader(got)); ; {
			mark, err := readReply(rest)
			if err == io.EOF {
				break
			}
			if err != nil || !known && mark != '-' && mark != '+' {
				t.Fatalf("the replies %q: %v", got, err)
			}
		}
		if v := s.run("GET", []string{"k"}); !known && (v != "v" || s.run("DBSIZE", nil) != 1) {
			t.Fatalf("without the password k has become %v", v)
		}
	})
}

// readReply reads one whole reply, and returns its first byte.
func readReply(r *bufio.Reader) (mark byte, err error) {
	line, err := r.ReadString('\n')
	if err != nil || len(line) < 3 || !strings.HasSuffix(line, "\r\n") {
		return 0, cmp.Or(err, fmt.Errorf("the line %q", line))
	}
	n, _ := strconv.Atoi(line[1 : len(line)-2])
	switch mark = line[0]; mark {
	case '+', '-', ':':
	case '$':
		if n >= 0 {
			_, err = io.CopyN(io.Discard, r, int64(n)+2)
		}
	case '*':
		for range n {
			if _, err = readReply(r); err != nil {
				return mark, fmt.Errorf("in a list: %v", err)
			}
		}
	default:
		err = fmt.Errorf("the line %q", line)
	}
	return mark, err
}
