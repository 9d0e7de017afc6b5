package natsmodel

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

// Kind is what a command does.
type Kind int

// The kinds of commands.
const (
	Connect Kind = iota
	Ping
	Pong
	Subscribe
	Unsubscribe
	Publish
)

// Command is what a client sends.
type Command struct {
	Kind    Kind
	Subject string
	Reply   string
	Header  nats.Header
	Data    []byte
	SID     string // of a subscription
	Queue   string // of a subscription
	Max     int    // of Unsubscribe: how many messages may come in all; 0 if none
	raw     []byte // Header on the wire
}

// Parse returns the complete commands in the bytes that came from a client so far, in their
// order, and keeps the rest for the next call. It keeps no reference to p.
func (c *Client) Parse(p []byte) (commands []Command, err error) {
	in := append(c.rest, p...) // behind rest, nothing else refers to its array
	for err == nil {
		line, rest, found := bytes.Cut(in, []byte("\r\n"))
		if !found {
			break
		}
		var one Command
		if one, rest, found, err = parse(string(line), rest); !found {
			break
		}
		commands = append(commands, one)
		in = rest
	}
	if c.rest = in; len(in) == 0 {
		c.rest = nil
	}
	return commands, err
}

// parse returns the command that a line begins. complete is false if its payload is not all in
// rest.
func parse(line string, rest []byte) (c Command, after []byte, complete bool, err error) {
	verb, args, _ := strings.Cut(line, " ")
	switch verb {
	case "PING":
		return Command{Kind: Ping}, rest, true, nil
	case "PONG":
		return Command{Kind: Pong}, rest, true, nil
	case "CONNECT":
		return Command{Kind: Connect, Data: []byte(args)}, rest, true, nil
	}
	f := strings.Fields(args)
	switch n := len(f); {
	case verb == "SUB" && n == 2:
		return Command{Kind: Subscribe, Subject: f[0], SID: f[1]}, rest, true, nil
	case verb == "SUB" && n == 3:
		return Command{Kind: Subscribe, Subject: f[0], Queue: f[1], SID: f[2]}, rest, true, nil
	case verb == "UNSUB" && (n == 1 || n == 2):
		c = Command{Kind: Unsubscribe, SID: f[0]}
		if n == 2 {
			c.Max, err = strconv.Atoi(f[1])
		}
		return c, rest, err == nil, err
	case verb == "PUB" && n >= 2, verb == "HPUB" && n >= 3:
		return parsePublish(f, verb == "HPUB", rest)
	}
	return c, nil, false, fmt.Errorf("unknown protocol line %q", line)
}

func parsePublish(f []string, headers bool, rest []byte) (c Command, after []byte, complete bool, err error) {
	n := len(f)
	total, err := strconv.Atoi(f[n-1])
	head := 0
	if n--; headers && err == nil {
		head, err = strconv.Atoi(f[n-1])
		n--
	}
	if err != nil || head < 0 || head > total || n < 1 || n > 2 {
		return c, nil, false, fmt.Errorf("invalid publication %q", f)
	}
	if len(rest) < total+2 {
		return c, nil, false, nil
	}
	c = Command{Kind: Publish, Subject: f[0], Data: rest[head:total:total]}
	if n == 2 {
		c.Reply = f[1]
	}
	if head > 0 {
		c.Header, c.raw = parseHeader(string(rest[:head]))
	}
	return c, rest[total+2:], true, nil
}

const headerLine = "NATS/1.0\r\n"

// parseHeader returns headers and their sorted form on the wire, without a status in the first
// line: the server removes that too.
func parseHeader(text string) (nats.Header, []byte) {
	_, text, _ = strings.Cut(text, "\r\n")
	lines := make([]string, 0, 16)
	for {
		line, rest, found := strings.Cut(text, "\r\n")
		if !found || line == "" {
			break
		}
		lines, text = append(lines, line), rest
	}
	if len(lines) == 0 {
		return nil, nil
	}
	slices.SortStableFunc(lines, func(a, b string) int {
		a, _, _ = strings.Cut(a, ":")
		b, _, _ = strings.Cut(b, ":")
		return cmp.Compare(a, b)
	})
	h := make(nats.Header, len(lines))
	values := make([]string, len(lines))
	raw := []byte(headerLine)
	for i, line := range lines {
		key, value, _ := strings.Cut(line, ":")
		values[i] = strings.TrimLeft(value, " ")
		if h[key] == nil {
			h[key] = values[i : i+1 : i+1]
		} else {
			h[key] = append(h[key], values[i])
		}
		raw = append(append(raw, line...), "\r\n"...)
	}
	return h, append(raw, "\r\n"...)
}

// rawHeader is the form of headers on the wire.
func rawHeader(h nats.Header) (nats.Header, []byte) {
	var b strings.Builder
	b.WriteString(headerLine)
	for key, values := range h {
		for _, v := range values {
			b.WriteString(key + ": " + v + "\r\n")
		}
	}
	return parseHeader(b.String() + "\r\n")
}

// Sent is what the server sends to a client.
type Sent struct {
	To      *Client
	Subject string
	Reply   string
	SID     string
	Header  []byte // as on the wire
	Data    []byte
	Close   bool   // the server closes the connection behind it
	line    string // if not "": all of it
}

// Bytes is the form on the wire.
func (m Sent) Bytes() []byte {
	if m.line != "" {
		return []byte(m.line)
	}
	b := make([]byte, 0, len(m.Subject)+len(m.SID)+len(m.Reply)+len(m.Header)+len(m.Data)+32)
	if len(m.Header) > 0 {
		b = append(b, 'H')
	}
	b = append(append(append(append(b, "MSG "...), m.Subject...), ' '), m.SID...)
	if m.Reply != "" {
		b = append(append(b, ' '), m.Reply...)
	}
	if len(m.Header) > 0 {
		b = strconv.AppendInt(append(b, ' '), int64(len(m.Header)), 10)
	}
	b = strconv.AppendInt(append(b, ' '), int64(len(m.Header)+len(m.Data)), 10)
	b = append(append(append(b, "\r\n"...), m.Header...), m.Data...)
	return append(b, "\r\n"...)
}
