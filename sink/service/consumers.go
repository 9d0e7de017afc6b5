package service

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// JetStream publishes what a push consumer delivers, and its heartbeats, with rights of its own
// to the subject that the request names. A client that may create consumers could so publish
// whatever only lapse may: ticks, beats, entries of the buckets, requests to JetStream. NATS has
// no permission that tells a push consumer from a pull consumer. So clients with limits do not
// reach JetStream with this one request. The service takes it, and passes on pull consumers only.

// pullFields are the fields of a consumer's configuration that the service passes on. Names are
// exact, because the server, which ignores case, must not find another field than the service.
var pullFields = []string{
	"name", "durable_name", "description", "metadata",
	"deliver_policy", "opt_start_seq", "opt_start_time", "replay_policy",
	"filter_subject", "filter_subjects", "headers_only",
	"ack_policy", "ack_wait", "max_deliver", "backoff", "max_ack_pending", "sample_freq",
	"max_waiting", "max_batch", "max_expires", "max_bytes",
	"inactive_threshold", "pause_until", "num_replicas", "mem_storage",
	"priority_groups", "priority_policy", "priority_timeout",
}

// pushFields are those that only a push consumer has. Some clients send them empty.
var pushFields = []string{"deliver_subject", "deliver_group", "flow_control", "idle_heartbeat", "rate_limit_bps"}

// maxCreates is how many requests for consumers may wait for JetStream, and createTimeout for how
// long. They have slots of their own, because reads go on while JetStream answers nothing.
const (
	maxCreates    = 64
	createTimeout = 10 * time.Second
)

// createConsumer takes a request for a consumer of the events, and answers as JetStream does.
func (s *Service) createConsumer(req *nats.Msg) {
	if req.Reply == "" {
		return // nobody waits for an answer
	}
	select {
	case s.creates <- struct{}{}:
		go func() {
			defer func() { <-s.creates }()
			s.answerCreate(req, s.passOn(req))
		}()
	default:
		s.answerCreate(req, refusal(503, jsTemporary, "too many requests for consumers wait for JetStream: try again"))
	}
}

func (s *Service) answerCreate(req *nats.Msg, answer []byte) {
	if err := req.Respond(answer); err != nil {
		s.log.Warn("reads: a request for a consumer was not answered", slog.String("subject", req.Subject), slog.Any("error", err))
	}
}

// passOn sends JetStream what the service has understood of a request, written anew.
func (s *Service) passOn(req *nats.Msg) []byte {
	body, err := pullConsumer(req.Data)
	if err != nil {
		return refusal(400, jsBadRequest, err.Error())
	}
	ctx, cancel := context.WithTimeout(s.ctx, createTimeout)
	defer cancel()
	rest := strings.TrimPrefix(req.Subject, s.opts.Prefix.CreateConsumer(""))
	msg, err := s.nc.RequestWithContext(ctx, "$JS.API.CONSUMER.CREATE."+s.opts.Prefix.EventsStream()+"."+rest, body)
	if err != nil {
		return refusal(503, jsTemporary, "JetStream did not answer the request for a consumer: try again: "+err.Error())
	}
	return msg.Data
}

// Codes of JetStream's errors.
const (
	jsBadRequest = 10003
	jsTemporary  = 10008 // not available for now
)

// refusal is an answer of JetStream that is an error.
func refusal(code, errCode int, why string) []byte {
	answer, _ := json.Marshal(map[string]any{ // these types always encode
		"type":  "io.nats.jetstream.api.v1.consumer_create_response",
		"error": map[string]any{"code": code, "err_code": errCode, "description": why},
	})
	return answer
}

// pullConsumer reads a request to create or change a consumer, and writes it anew. It returns an
// error unless the request is for a pull consumer.
func pullConsumer(request []byte) ([]byte, error) {
	fields, err := object(request)
	if err != nil {
		return nil, fmt.Errorf("the request is not a JSON object: %w", err)
	}
	for name := range fields {
		if !slices.Contains([]string{"stream_name", "config", "action", "pedantic"}, name) {
			return nil, fmt.Errorf("the request has the field %q, which lapse does not know: use stream_name, config, action or pedantic", name)
		}
	}
	config, err := object(fields["config"])
	if err != nil {
		return nil, fmt.Errorf("the config of the consumer is not a JSON object: %w", err)
	}
	for name, value := range config {
		switch {
		case slices.Contains(pullFields, name):
		case slices.Contains(pushFields, name) && slices.Contains([]string{"null", `""`, "0", "false"}, string(value)):
			delete(config, name)
		case slices.Contains(pushFields, name):
			return nil, fmt.Errorf("a consumer with %s is a push consumer, and this user may create pull consumers only: leave %s out", name, name)
		default:
			return nil, fmt.Errorf("the config of the consumer has the field %q, which lapse does not know: use %s", name, strings.Join(pullFields, ", "))
		}
	}
	if fields["config"], err = json.Marshal(config); err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}

// object reads a JSON object. Of two fields with one name the last counts.
func object(data []byte) (fields map[string]json.RawMessage, err error) {
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, err
	}
	if fields == nil {
		return nil, fmt.Errorf("it is %q", bytes.TrimSpace(data))
	}
	return fields, nil
}
