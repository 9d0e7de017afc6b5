package embedded

import (
	"bufio"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"strings"
	"time"
)

const (
	loginTimeout = 10 * time.Second // to give the password
	idleTimeout  = 5 * time.Minute  // redis-cli connects again
	replyTimeout = 10 * time.Second // to take a part of a reply
	replyBuffer  = 16 << 10
)

// session is a connection.
type session struct {
	server   *Server
	conn     net.Conn
	out      *bufio.Writer
	password string // "" if the connection is within the process, which needs none
	known    bool   // has given the password, or needs none
}

func (s *Server) newSession(c net.Conn, password string) *session {
	n := &session{server: s, conn: c, password: password, known: password == ""}
	n.out = bufio.NewWriterSize(n, replyBuffer)
	if !n.known {
		_ = c.SetReadDeadline(time.Now().Add(loginTimeout))
	}
	return n
}

// Read reads from the connection. The client gets its replies before the session waits for more.
func (n *session) Read(b []byte) (int, error) {
	if err := n.out.Flush(); err != nil {
		return 0, err
	}
	if n.password != "" && n.known {
		_ = n.conn.SetReadDeadline(time.Now().Add(idleTimeout))
	}
	return n.conn.Read(b)
}

// Write sends a part of the replies.
func (n *session) Write(b []byte) (int, error) {
	if n.password != "" {
		_ = n.conn.SetWriteDeadline(time.Now().Add(replyTimeout))
	}
	return n.conn.Write(b)
}

// run answers commands until the connection ends.
func (n *session) run() {
	defer func() {
		_ = n.out.Flush() // the client may be gone
		_ = n.conn.Close()
	}()
	in := bufio.NewReaderSize(n, readBuffer)
	for {
		most := unknownClient
		if n.known {
			most = knownClient
		}
		words, err := readCommand(in, most)
		var wrong protocolError
		if errors.As(err, &wrong) {
			write(n.out, failure("ERR "+wrong.Error()))
		}
		if err != nil || !n.answer(strings.ToUpper(words[0]), words[1:]) {
			return
		}
	}
}

// answer answers one command. It reports whether the connection goes on.
func (n *session) answer(name string, args []string) (goesOn bool) {
	defer func() {
		if why := recover(); why != nil { // a panic must not end the process
			n.server.log.Error("embedded Redis: a command failed", slog.String("command", name), slog.Any("panic", why),
				slog.String("stack", string(debug.Stack())))
			write(n.out, failure(fmt.Sprintf("ERR internal error: %v", why)))
			goesOn = false
		}
	}()
	switch name {
	case "POST", "HOST:":
		// It is an HTTP request, whose body could hold commands: a web page can make a browser
		// send it. Redis closes the connection too.
		return false
	case "QUIT":
		write(n.out, ok)
		return false
	case "AUTH":
		write(n.out, n.auth(args))
		return true
	case "HELLO":
		write(n.out, n.hello(args))
		return true
	}
	switch {
	case !n.known:
		write(n.out, failure("NOAUTH Authentication required."))
	case name == "CLIENT":
		write(n.out, describeClient(args))
	case name == "SELECT":
		write(n.out, selectDB(args))
	default:
		write(n.out, n.server.run(name, args))
	}
	return true
}

// auth checks AUTH with a user, or without one, and a password.
func (n *session) auth(args []string) any {
	switch {
	case len(args) != 1 && len(args) != 2:
		return wrongNumber("AUTH")
	case n.password == "":
		return failure("ERR AUTH <password> called without any password configured for the default user. Are you sure your " +
			"configuration is correct?")
	case len(args) == 2 && args[0] != "default":
		return wrongPassword
	}
	want, got := sha256.Sum256([]byte(n.password)), sha256.Sum256([]byte(args[len(args)-1]))
	if subtle.ConstantTimeCompare(want[:], got[:]) == 0 {
		return wrongPassword
	}
	n.known = true
	return ok
}

// hello answers HELLO [2 [AUTH user password] [SETNAME name]].
func (n *session) hello(args []string) any {
	if len(args) > 0 && args[0] != "2" {
		return failure("NOPROTO unsupported protocol version")
	}
	for rest := args[min(len(args), 1):]; len(rest) > 0; {
		switch what := strings.ToUpper(rest[0]); {
		case what == "AUTH" && len(rest) >= 3:
			if reply := n.auth(rest[1:3]); reply != ok {
				return reply
			}
			rest = rest[3:]
		case what == "SETNAME" && len(rest) >= 2:
			rest = rest[2:]
		default:
			return failure(fmt.Sprintf("ERR Syntax error in HELLO option '%.128s'", rest[0]))
		}
	}
	if !n.known {
		return failure("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> " +
			"<pass> option can be used to authenticate the client and select the RESP protocol version at the same time")
	}
	return []any{"server", "lapse", "proto", 2, "mode", "standalone", "role", "master"}
}

// describeClient answers CLIENT SETINFO and SETNAME, with which a client describes itself.
func describeClient(args []string) any {
	switch what := strings.ToUpper(strings.Join(args[:min(len(args), 1)], "")); {
	case what == "SETINFO" && len(args) == 3, what == "SETNAME" && len(args) == 2:
		return ok
	default:
		return unknown(strings.TrimSpace("CLIENT " + what))
	}
}

func selectDB(args []string) any {
	if len(args) == 1 && args[0] == "0" {
		return ok
	}
	return failure("ERR DB index is out of range")
}
