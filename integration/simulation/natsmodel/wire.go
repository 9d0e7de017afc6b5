package natsmodel

import (
	"bytes"
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

var kinds = map[string]Kind{"CONNECT": Connect, "PING": Ping, "PONG": Pong, "SUB": Subscribe, "UNSUB": Unsubscribe,
	"PUB": Publish, "HPUB": Publish}

// Command is what a client sends.
type Command struct {
	Kind    Kind
	Subject string
	Reply   string
	Header  nats.Header
	Data    []byte
	SID     string // of a subscription
	raw     []byte // Header on the wire
}

// Parse returns the complete commands in the bytes that came from a client so far, and keeps
// the rest for the next call. It keeps no reference to p.
func (c *Client) Parse(p []byte) (commands []Command, err error) {
	c.rest = append(c.rest, p...) // commands share the array, but not what is behind rest
	for {
		line, rest, found := bytes.Cut(c.rest, []byte("\r\n"))
		if !found {
			return commands, nil
		}
		verb, args, _ := strings.Cut(string(line), " ")
		kind, ok := kinds[verb]
		command := Command{Kind: kind}
		f := strings.Fields(args)
		switch {
		case ok && kind == Publish && len(f) > 1:
			n, head := len(f)-1, 0
			total, err := strconv.Atoi(f[n])
			if verb == "HPUB" && err == nil {
				n--
				head, err = strconv.Atoi(f[n])
			}
			if err != nil || n < 1 || head > total {
				return commands, fmt.Errorf("invalid publication %q", line)
			}
			if len(rest) < total+2 {
				return commands, nil
			}
			command.Subject, command.Data = f[0], rest[head:total:total]
			if n > 1 {
				command.Reply = f[1]
			}
			if head > 0 {
				command.Header, command.raw = sorted(string(rest[:head]))
			}
			rest = rest[total+2:]
		case ok && kind == Subscribe && len(f) == 2:
			command.Subject, command.SID = f[0], f[1]
		case ok && kind == Unsubscribe && len(f) == 1:
			command.SID = f[0]
		case !ok || kind >= Subscribe:
			return commands, fmt.Errorf("a command that is not modelled: %q", line)
		}
		commands, c.rest = append(commands, command), rest
	}
}

const headerLine = "NATS/1.0\r\n"

// sorted decodes headers, and returns them with a sorted form for the wire. It drops a status
// in the first line, as the server does.
func sorted(text string) (nats.Header, []byte) {
	lines := strings.Split(strings.TrimSuffix(text, "\r\n\r\n"), "\r\n")[1:]
	if len(lines) == 0 {
		return nil, nil
	}
	slices.SortStableFunc(lines, func(a, b string) int {
		return strings.Compare(a[:strings.IndexByte(a, ':')+1], b[:strings.IndexByte(b, ':')+1])
	})
	h := make(nats.Header, len(lines))
	raw := append(make([]byte, 0, len(text)), headerLine...)
	for i, line := range lines {
		raw = append(append(raw, line...), "\r\n"...)
		key, value, _ := strings.Cut(line, ":")
		if lines[i] = strings.TrimLeft(value, " "); h[key] == nil {
			h[key] = lines[i : i+1 : i+1] // one array for nearly all values
		} else {
			h[key] = append(h[key], lines[i])
		}
	}
	return h, append(raw, "\r\n"...)
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
	line    string // all of it, if it is not a message
}

// Bytes is the form on the wire.
func (m Sent) Bytes() []byte {
	if m.line != "" {
		return []byte(m.line)
	}
	verb, reply := "MSG ", ""
	size := strconv.Itoa(len(m.Header) + len(m.Data))
	if m.Header != nil {
		verb, size = "HMSG ", strconv.Itoa(len(m.Header))+" "+size
	}
	if m.Reply != "" {
		reply = m.Reply + " "
	}
	return slices.Concat([]byte(verb+m.Subject+" "+m.SID+" "+reply+size+"\r\n"), m.Header, m.Data, []byte("\r\n"))
}
