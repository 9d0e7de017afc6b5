package lease

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// forgetful is JetStream in a cluster: it loses some requests, or their answers.
type forgetful struct {
	jetstream.JetStream
	questions, answers int // how many are lost
	exists             bool
}

func (f *forgetful) KeyValue(ctx context.Context, _ string) (jetstream.KeyValue, error) {
	if f.questions > 0 {
		f.questions--
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if !f.exists {
		return nil, jetstream.ErrBucketNotFound
	}
	return nil, nil
}

func (f *forgetful) CreateKeyValue(ctx context.Context, _ jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	f.exists = true
	if f.answers > 0 {
		f.answers--
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return nil, nil
}

// fleeting is JetStream while another process deletes the bucket and creates it: so many times it
// cannot be created, and does not exist when it is looked up.
type fleeting struct {
	jetstream.JetStream
	times   int
	refusal error
}

func (f *fleeting) KeyValue(context.Context, string) (jetstream.KeyValue, error) {
	if f.times > 0 {
		return nil, jetstream.ErrBucketNotFound
	}
	return nil, nil
}

func (f *fleeting) CreateKeyValue(context.Context, jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	f.times--
	return nil, f.refusal
}

// Fails if a process does not start because the bucket is deleted and created at that moment.
func TestProvisionWhileTheBucketComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// What a server answered while it removed the files of the deleted bucket.
		removing := &jetstream.APIError{Code: 500, ErrorCode: createFailed, Description: "error creating store for stream"}
		// What a leader answers that does not know all servers yet.
		offline := &jetstream.APIError{Code: 400, ErrorCode: 10005, Description: "no suitable peers for placement, peer " +
			"offline"}
		for _, refusal := range []error{jetstream.ErrBucketExists, removing, offline} {
			provision := func(times int) error {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				_, err := newBucket(&fleeting{times: times, refusal: refusal}, nil, 2*time.Second, "lapse", 1).Provision(ctx)
				return err
			}
			if err := provision(3); err != nil {
				t.Errorf("it comes and stays: %v", err)
			}
			if provision(1e6) == nil {
				t.Error("it never stays, and there is no error")
			}
		}
	})
}

// Fails if a lost request, or a lost answer, uses up the time that there is for a start.
func TestProvisionWhereRequestsAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 2 * time.Second
		for name, js := range map[string]*forgetful{
			"question": {questions: 1}, "answer": {answers: 1}, "both, twice": {questions: 2, answers: 2},
		} {
			lost := js.questions + js.answers
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			began := time.Now()
			_, err := newBucket(js, nil, limit, "lapse", 1).Provision(ctx)
			cancel()
			if took := time.Since(began); err != nil || !js.exists || took > time.Duration(lost)*(limit+between) {
				t.Errorf("%s: %v after %v", name, err, took)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := newBucket(&forgetful{questions: 9}, nil, limit, "lapse", 1).Provision(ctx); !errors.Is(err,
			context.DeadlineExceeded) || ctx.Err() == nil {
			t.Errorf("where nobody answers: %v, before the time was up", err)
		}
	})
}

// TestPutOfNoNumber: an entry that JSON cannot have is an error. It does not replace the entry of the process by nothing.
func TestPutOfNoNumber(t *testing.T) {
	var no *json.UnsupportedValueError
	if err := new(bucket).Put(t.Context(), wire.Member{Overdue: math.NaN()}); !errors.As(err, &no) {
		t.Errorf("stored with %v", err)
	}
}

// TestRemoveWithoutABucket: a removal from a bucket that does not exist is an error, and no panic.
func TestRemoveWithoutABucket(t *testing.T) {
	p := startNATS(t).prepare("a", Options{})
	if err := p.bucket.Remove(t.Context(), "b", 0); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("removed with %v, want ErrStreamNotFound", err)
	}
}

// TestDescribe: a process tells the others when it has started: when its options say, and else when the member was made.
func TestDescribe(t *testing.T) {
	s := startNATS(t)
	for started, least := range map[wire.Time]wire.Time{7: 7, 0: wire.Time(time.Now().UnixMilli())} {
		opts := Options{Describe: func() wire.Member { return wire.Member{ID: "no", Name: "no", Owns: []int{3}, Started: started} }}
		got := s.prepare("a", opts).describe()
		if got.ID != "a" || got.Name != "name of a" || got.Owns != nil || got.Seen < least || got.Started < least ||
			started != 0 && got.Started != started || got.Problem != "" {
			t.Errorf("started at %d: %+v", started, got)
		}
	}
}
