package natsmodel

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

var (
	errBadRequest = refused(400, 10003, "bad request")
	errNoConsumer = refused(404, 10014, "consumer not found")
	errNotFound   = refused(404, 10037, "no message found")
	errNoStream   = refused(404, 10059, "stream not found")
)

func invalidConfig(reason string) *refusal { return refused(500, 10052, "%s", reason) }

// request handles a request of JetStream, by its subject behind $JS.API. It reports whether
// anybody is there to hear it.
func (s *Server) request(c *Command, api string) (heard bool) {
	subject := strings.Split(api, ".")
	verb := func(n int) string { return strings.Join(subject[:min(n, len(subject))], ".") }
	switch {
	case api == "INFO":
		s.answer(c.Reply, nil, []byte(`{"type":"io.nats.jetstream.api.v1.account_info_response","api":{"level":4,"total":0,"errors":0}}`))
		return true
	case verb(2) == "DIRECT.GET" && len(subject) > 2:
		return s.directGet(c, subject[2])
	case verb(3) == "CONSUMER.MSG.NEXT" && len(subject) == 5:
		return s.pull(c, subject[3], subject[4])
	case verb(3) == "STREAM.MSG.GET" && len(subject) == 4:
		s.leaderGet(c, subject[3])
		return true
	case verb(1) == "STREAM" && len(subject) == 3:
		s.streamRequest(c, subject[1], subject[2])
		return true
	case verb(1) == "CONSUMER" && len(subject) == 4:
		s.consumerRequest(c, subject[1], subject[2], subject[3])
		return true
	}
	panic(fmt.Sprintf("natsmodel: a request to %s is not modelled", c.Subject))
}

// streamRequest handles a request about one stream.
func (s *Server) streamRequest(c *Command, verb, name string) {
	st := s.Stream(name)
	kind := "stream_" + strings.ToLower(verb)
	var e *refusal
	var config jetstream.StreamConfig
	if verb == "CREATE" || verb == "UPDATE" {
		decode(c, &config)
	}
	switch {
	case verb == "CREATE":
		st, e = s.create(config)
	case verb == "UPDATE":
		e = s.update(st, config)
	case st == nil:
		e = errNoStream
	case verb == "DELETE":
		s.DeleteStream(name)
	case verb == "PURGE":
		s.purgeRequest(c, st)
		return
	case verb != "INFO" || len(c.Data) > 0:
		panic(fmt.Sprintf("natsmodel: the request to %s is not modelled", c.Subject))
	}
	switch {
	case e != nil:
		s.fail(c, kind, e)
	case verb == "DELETE":
		s.succeed(c, kind, `"success":true`)
	case verb == "INFO":
		s.succeed(c, kind, "%s", st.info(st.seen()))
	default:
		s.succeed(c, kind, "%s", st.info(st.last))
	}
}

func (s *Server) purgeRequest(c *Command, st *Stream) {
	var request struct {
		Filter    string
		Seq, Keep uint64
	}
	if len(c.Data) > 0 {
		decode(c, &request)
	}
	switch {
	case request.Seq > 0 && request.Keep > 0:
		s.fail(c, "stream_purge", errBadRequest)
	case st.config.Sealed:
		s.fail(c, "stream_purge", errSealed)
	case st.failed != nil:
		s.fail(c, "stream_purge", refused(500, 10051, "%v", st.failed))
	default:
		s.succeed(c, "stream_purge", `"success":true,"purged":%d`, st.purge(request.Filter, request.Seq, request.Keep))
	}
}

// decode decodes a request.
func decode(c *Command, v any) {
	if err := json.Unmarshal(c.Data, v); err != nil {
		panic(fmt.Sprintf("natsmodel: request to %s: %v", c.Subject, err))
	}
}

func (s *Server) succeed(c *Command, kind, format string, args ...any) {
	b := append(make([]byte, 0, 1024), `{"type":"io.nats.jetstream.api.v1.`+kind+`_response",`...)
	s.answer(c.Reply, nil, append(fmt.Appendf(b, format, args...), '}'))
}

func (s *Server) fail(c *Command, kind string, e *refusal) {
	text, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	s.succeed(c, kind, `"error":%s`, text)
}

// Keys of metadata that belong to the server.
const (
	requiredLevel = "_nats.req.level"
	serverLevel   = "_nats.level"
	serverVersion = "_nats.ver"
)

// info is what the server tells of a stream, as far as messages up to a sequence show it.
func (st *Stream) info(upTo uint64) []byte {
	if st.described == nil {
		config := st.config
		config.Metadata = dynamic(config.Metadata)
		text, err := json.Marshal(config)
		if err != nil {
			panic(err)
		}
		st.described = text
	}
	shown, bytes := st.messages[:st.from(upTo+1)], st.bytes
	for _, m := range st.messages[len(shown):] {
		bytes -= size(m.Subject, m.raw, m.Data)
	}
	var firstAt, lastAt time.Time
	deleted := uint64(0)
	if n := len(shown); n > 0 {
		firstAt, lastAt, deleted = shown[0].At, shown[n-1].At, upTo+1-st.first-uint64(n)
	}
	return fmt.Appendf(make([]byte, 0, 1024),
		`"config":%s,"created":"%s","state":{"messages":%d,"bytes":%d,"first_seq":%d,"first_ts":"%s","last_seq":%d,"last_ts":"%s","num_subjects":%d,"num_deleted":%d,"consumer_count":%d},"ts":"%s"`,
		st.described, stamp(st.created), len(shown), bytes, st.first, stamp(firstAt), upTo, stamp(lastAt), len(st.subjects), deleted, len(st.consumers), stamp(st.server.now()))
}

func stamp(t time.Time) []byte { return t.UTC().AppendFormat(nil, time.RFC3339Nano) }

// dynamic returns metadata with what the server adds to its answers.
func dynamic(metadata map[string]string) map[string]string {
	m := maps.Clone(metadata)
	m[serverLevel], m[serverVersion] = "4", "2.15.2"
	return m
}

// static returns metadata with what the server stores.
func static(metadata map[string]string, level int) map[string]string {
	m := maps.Clone(metadata)
	if m == nil {
		m = make(map[string]string)
	}
	delete(m, serverLevel)
	delete(m, serverVersion)
	m[requiredLevel] = strconv.Itoa(level)
	return m
}

// complete returns a configuration with defaults, or why it is not valid.
func (s *Server) complete(c jetstream.StreamConfig, self *Stream) (jetstream.StreamConfig, *refusal) {
	if len(c.Subjects) == 0 {
		c.Subjects = []string{c.Name}
	}
	c.Replicas = max(c.Replicas, 1)
	noLimit(&c.MaxMsgs)
	noLimit(&c.MaxBytes)
	noLimit(&c.MaxMsgsPerSubject)
	noLimit(&c.MaxMsgSize)
	noLimit(&c.MaxConsumers)
	if c.Duplicates == 0 {
		if c.Duplicates = 2 * time.Minute; c.MaxAge != 0 {
			c.Duplicates = min(c.Duplicates, c.MaxAge)
		}
	}
	level := 0
	if c.AllowAtomicPublish {
		level = 2
	}
	if c.AllowBatchPublish {
		level = 4
	}
	c.Metadata = static(c.Metadata, level)
	switch {
	case c.MaxAge != 0 && c.MaxAge < 100*time.Millisecond:
		return c, invalidConfig("max age needs to be >= 100ms")
	case c.MaxAge != 0 && c.Duplicates > c.MaxAge:
		return c, invalidConfig("duplicates window can not be larger then max age")
	case c.Duplicates < 100*time.Millisecond:
		return c, invalidConfig("duplicates window needs to be >= 100ms")
	case c.Replicas > s.replicas:
		return c, refused(500, 10074, "replicas > 1 not supported in non-clustered mode")
	}
	for _, st := range s.streams {
		for _, a := range st.config.Subjects {
			if st != self && st.config.Name != c.Name && slices.ContainsFunc(c.Subjects, func(b string) bool { return collide(a, b) }) {
				return c, refused(400, 10065, "subjects overlap with an existing stream")
			}
		}
	}
	return c, nil
}

func noLimit[T int | int32 | int64](limit *T) {
	if *limit <= 0 {
		*limit = -1
	}
}

// create creates a stream, or finds the same one.
func (s *Server) create(c jetstream.StreamConfig) (*Stream, *refusal) {
	if c.Sealed {
		return nil, invalidConfig("stream configuration for create can not be sealed")
	}
	c, e := s.complete(c, nil)
	if e != nil {
		return nil, e
	}
	if st := s.Stream(c.Name); st != nil {
		if reflect.DeepEqual(c, st.config) {
			return st, nil
		}
		return nil, refused(400, 10058, "stream name already in use with a different configuration")
	}
	st := &Stream{server: s, config: c, created: s.now().Round(0).UTC(), ids: make(map[string]published), store: store{subjects: make(map[string]*tally)}}
	s.streams = append(s.streams, st)
	return st, nil
}

// update changes the configuration of a stream.
func (s *Server) update(st *Stream, c jetstream.StreamConfig) *refusal {
	c, e := s.complete(c, st)
	switch {
	case e != nil:
		return e
	case st == nil:
		return errNoStream
	case c.Storage != st.config.Storage:
		return invalidConfig("stream configuration update can not change storage type")
	case !c.Sealed && st.config.Sealed:
		return invalidConfig("stream configuration update can not unseal a sealed stream")
	case !c.DenyDelete && st.config.DenyDelete:
		return invalidConfig("stream configuration update can not cancel deny message deletes")
	}
	if c.Sealed {
		c.MaxAge, c.Discard, c.AllowRollup = 0, jetstream.DiscardNew, false
		c.DenyDelete, c.DenyPurge = true, true
	}
	st.SetConfig(func(config *jetstream.StreamConfig) { *config = c })
	return nil
}
