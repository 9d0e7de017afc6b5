package natsmodel

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestFaults breaks a stream in each way, and looks at what clients see.
func TestFaults(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	s := New(Options{Now: func() time.Time { return now }, Replicas: 3, MaxPayload: 500})
	if err := s.CreateStream(jetstream.StreamConfig{Name: "S", Subjects: []string{"s.*"}, Replicas: 3,
		AllowDirect: true}); err != nil {
		t.Fatal(err)
	}
	st, c := s.Stream("S"), s.Connect()
	s.Do(c, Command{Kind: Subscribe, Subject: "_INBOX.a.*", SID: "1"})
	ask := func(subject, header, data string) string {
		command := Command{Kind: Publish, Subject: subject, Reply: "_INBOX.a.b", Data: []byte(data)}
		if header != "" {
			command.Header, command.raw = sorted("NATS/1.0\r\n" + header + "\r\n\r\n")
		}
		answer := ""
		for _, m := range s.Do(c, command) {
			answer += string(m.Bytes())
		}
		return answer
	}
	check := func(what, answer, want string) {
		t.Helper()
		if want == "" && answer != "" || !strings.Contains(answer, want) {
			t.Errorf("%s: the answer is %q, and should have %q", what, answer, want)
		}
	}
	expect := func(n string) string { return "Nats-Expected-Last-Subject-Sequence: " + n }
	check("a message", ask("s.a", "Nats-Msg-Id: 1", "1"), `"seq":1}`)
	check("one in flight", ask("s.a", expect("1"), "2"), `"err_code":10164`)
	if next, ok := s.Next(); !ok || next.Sub(now) != flightTime {
		t.Errorf("the flight is over at %v", next)
	}
	s.Timers()
	check("none in flight", ask("s.a", expect("1"), "2"), `"seq":2}`)
	check("a duplicate", ask("s.a", "Nats-Msg-Id: 1", "1"), `"seq":1,"duplicate":true}`)
	check("another id", ask("s.a", "Nats-Msg-Id: 2", "3"), `"seq":3}`)

	s.Lag = 1
	check("a replica that lags", ask("$JS.API.DIRECT.GET.S.s.a", "", ""), "\r\n\r\n2\r\n")
	check("its state", ask("$JS.API.STREAM.INFO.S", "", ""), `"last_seq":2`)
	check("the leader", ask("$JS.API.STREAM.MSG.GET.S", "", `{"last_by_subj":"s.a"}`), `"seq":3`)
	s.Lag = 0

	s.Refuse = func(string, Command) error { return tooMany("messages") }
	check("a refusal", ask("s.a", "", ""),
		`{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"S","seq":0}`)
	s.Refuse = func(string, Command) error { return errors.New("no room") }
	check("a failed write", ask("s.a", "", ""), "")
	s.Refuse = nil
	check("a condition after a failed write", ask("s.a", "Nats-Expected-Last-Sequence: 9", ""), `"err_code":10071`)
	check("a purge after a failed write", ask("$JS.API.STREAM.PURGE.S", "", ""),
		`"err_code":10051,"description":"no room"`)
	st.Fail(nil)
	s.Mute = func(subject string) bool { return true }
	check("nobody hears a message", ask("s.a", "", ""), "")
	check("nobody hears a request", ask("$JS.API.INFO", "", ""), "")
	s.Mute = nil

	now = now.Add(-time.Hour)
	check("the clock falls", ask("s.a", "", "4"), `"seq":4}`)
	if m := st.Messages(); !m[3].At.Equal(now) || !m[2].At.After(m[1].At) {
		t.Errorf("the stamps are %v, %v and %v", m[1].At, m[2].At, m[3].At)
	}
	st.LoseTail(2)
	ack, _ := s.Append("s.a", nats.Header{"Nats-Msg-Id": {"2"}}, nil)
	check("another end", string(ack), `"seq":3}`)
	if st.Delete(2); len(st.Messages()) != 2 || st.FirstSeq() != 1 {
		t.Errorf("the messages are %v", st.Messages())
	}
	if st.Truncate(9); st.FirstSeq() != 4 || st.LastSeq() != 3 {
		t.Errorf("the stream is from %d to %d", st.FirstSeq(), st.LastSeq())
	}
	if st.LoseEnd(1, time.Minute); st.FirstSeq() != 1 || st.LastSeq() != 2 || len(st.Messages()) != 2 {
		t.Errorf("what was removed since the instant is not back: %d to %d, %v", st.FirstSeq(), st.LastSeq(),
			st.Messages())
	}
	ask("s.a", "", "5")
	st.Sync()
	if st.LoseEnd(9, time.Minute); st.LastSeq() != 3 {
		t.Errorf("what was synced is lost: the last sequence is %d", st.LastSeq())
	}
	check("more than max_payload", ask("s.a", "", strings.Repeat("x", 501)), "-ERR 'Maximum Payload Violation'\r\n")
	s.Disconnect(c)
	check("a message behind the end of a connection", ask("s.a", "", ""), "")
	if st.LastSeq() != 4 {
		t.Errorf("the last sequence is %d", st.LastSeq())
	}
}
