package events

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// remedies say what to do after a stream refused a message, by the code of the server's error.
var remedies = map[jetstream.ErrorCode]string{
	10002: "the limits of the account are reached: raise them, or remove messages",
	10023: "JetStream has no more room: raise max_file_store of the NATS server, or remove messages",
	10047: "JetStream has no more room on disk: raise max_file_store of the NATS server, or make room",
	10060: "another stream takes the subjects of events: remove them from that stream",
	10077: "the stream is full or cannot be written: raise its limits (max_msgs, max_bytes) or set its discard policy to old, and look at the disk of the NATS server",
	10109: "the stream is sealed, which cannot be undone: it has to be made anew",
	10174: "the stream does not accept atomic batches: set allow_atomic, as lapse did when it made the stream",
	10164: "the stream has another message of this shard in process: lapse tries again",
}

// refusedBy explains why the stream refused a message: [ErrFenced], or what to do.
func refusedBy(stream, subject string, err error) error {
	var api *jetstream.APIError
	switch errors.As(err, &api); {
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return fmt.Errorf("publish to %s: no stream takes it: stream %s is gone or has no leader: restore it, or restart lapse, which makes what is absent: %w", subject, stream, err)
	case api == nil:
		return fmt.Errorf("publish to %s: %w", subject, err)
	case api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence:
		return fmt.Errorf("publish to %s: %w: %w", subject, ErrFenced, err)
	}
	remedy, ok := remedies[api.ErrorCode]
	if !ok {
		return fmt.Errorf("publish to %s: stream %s refuses it: %w", subject, stream, err)
	}
	return fmt.Errorf("publish to %s: stream %s refuses it (%s): %s: %w", subject, stream, api.Description, remedy, err)
}

// refusal reports whether the stream answered, and refused.
func refusal(err error) bool { return codeOf(err) != 0 }

// codeOf is the error code with which the stream refused a message; 0 if it did not.
func codeOf(err error) jetstream.ErrorCode {
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return 0
	}
	return api.ErrorCode
}
