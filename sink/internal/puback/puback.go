// Package puback is JetStream's protocol of publications: how a client publishes a fast batch, and what
// the server answers to each publication.
//
// The server stores the messages of a fast batch in their order, up to the first that it refuses, and
// none after that one. It reports its progress now and then, and how many it has stored at the end.
//
// The FastPublisher of jetstreamext (v0.3.0) cannot be used: it subscribes and waits once more for each
// batch, names a refused message only in a text, and tells of progress only as the next is added.
package puback

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Codes by which the server refuses a fast batch.
const (
	FastDisabled jetstream.ErrorCode = 10205 // the stream does not take any
	FastPattern  jetstream.ErrorCode = 10206 // an account changes the subjects of replies
	FastUnknown  jetstream.ErrorCode = 10208 // the server was restarted since the batch began
	FastTooMany  jetstream.ErrorCode = 10211 // too many are open
)

// Operation is what a publication does to its fast batch.
type Operation string

const (
	begin  Operation = "0"
	Add    Operation = "1" // it is another message, or the first
	Commit Operation = "2" // it is the last message
	End    Operation = "3" // it ends the batch, and is not stored
)

// FastReply is the reply subject of a message of a fast batch. Its tail tells the server the id of the
// batch, after how many messages to report progress, to end the batch at a gap, and the number of
// the message, from 1 on.
func FastReply(inbox, batch string, reportEvery, message int, op Operation) string {
	if message == 1 && op == Add {
		op = begin
	}
	return inbox + "." + batch + "." + strconv.Itoa(reportEvery) + ".fail." + strconv.Itoa(message) + "." + string(op) +
		".$FI"
}

// FastMessage reads the batch and the number of the message from a subject that FastReply made.
func FastMessage(subject string) (batch string, message int) {
	tokens := strings.Split(subject, ".")
	if len(tokens) < 6 {
		return "", 0
	}
	tokens = tokens[len(tokens)-6:]
	message, _ = strconv.Atoi(tokens[3])
	return tokens[0], message
}

// Answer is what the server answers to a publication.
type Answer struct {
	Type      string // ack, gap or err: a report before the end of a fast batch; "" in other answers
	Stream    string
	Seq       uint64 // at which the message is stored; in a report, a number in the batch
	Duplicate bool   // the stream had a message with the same id, at Seq
	Batch     string // the batch that has ended
	Count     int    // how many of its messages are stored
	Error     *jetstream.APIError
}

// ErrNotAnAnswer: something other than JetStream has answered.
var ErrNotAnAnswer = errors.New("not an answer of JetStream")

// Read reads an answer. It returns [jetstream.ErrNoStreamResponse] if nobody listens on the subject of the
// publication. A refusal is in Answer.Error alone.
func Read(m *nats.Msg) (a Answer, err error) {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return a, jetstream.ErrNoStreamResponse
	}
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return a, fmt.Errorf("%w: %w", ErrNotAnAnswer, err)
	}
	if a.Error == nil && a.Type == "" && (a.Stream == "" || a.Seq == 0 && a.Batch == "") {
		return a, ErrNotAnAnswer
	}
	return a, nil
}
