package recipes

import (
	"context"
	"errors"
	"time"

	"github.com/seed18712806/lapse/sink/client"
)

// SCSSession is the document of a session: the bytes that scs encodes.
type SCSSession struct {
	Data []byte `json:"data"`
}

// SCSStore keeps the sessions of github.com/alexedwards/scs in lapse: it is a Store, a CtxStore, an IterableStore
// and an IterableCtxStore. The deadline that scs gives a session is the absolute deadline of its document, so
// configure the collection with a DefaultTTL of client.Never, once, before you use it.
type SCSStore struct {
	sessions *client.Collection[SCSSession]
}

// NewSCSStore makes a store of a collection.
func NewSCSStore(sessions *client.Collection[SCSSession]) *SCSStore { return &SCSStore{sessions} }

// FindCtx reads a session. One that has expired is not found.
func (s *SCSStore) FindCtx(ctx context.Context, token string) (data []byte, found bool, err error) {
	doc, err := s.sessions.Get(ctx, token)
	if errors.Is(err, client.ErrNotFound) || errors.Is(err, client.ErrInvalid) { // a browser may send anything
		return nil, false, nil
	}
	return doc.Value.Data, err == nil, err
}

// CommitCtx stores a session until its deadline.
func (s *SCSStore) CommitCtx(ctx context.Context, token string, data []byte, expiry time.Time) error {
	w, err := s.sessions.Upsert(ctx, token, SCSSession{data}, client.ExpiresAt(expiry))
	if err == nil && w.ExpiresAt.IsZero() {
		return errors.Join(errors.New("the session would never end: "+w.Warning), s.DeleteCtx(ctx, token))
	}
	return err
}

// DeleteCtx removes a session. One that is not there is no error.
func (s *SCSStore) DeleteCtx(ctx context.Context, token string) error {
	if _, err := s.sessions.Delete(ctx, token); !errors.Is(err, client.ErrNotFound) {
		return err
	}
	return nil
}

// AllCtx reads all sessions.
func (s *SCSStore) AllCtx(ctx context.Context) (map[string][]byte, error) {
	all := make(map[string][]byte)
	for doc, err := range s.sessions.List(ctx) {
		if err != nil {
			return nil, err
		}
		all[doc.ID] = doc.Value.Data
	}
	return all, nil
}

// Find is FindCtx without a context.
func (s *SCSStore) Find(token string) (data []byte, found bool, err error) {
	return s.FindCtx(context.Background(), token)
}

// Commit is CommitCtx without a context.
func (s *SCSStore) Commit(token string, data []byte, expiry time.Time) error {
	return s.CommitCtx(context.Background(), token, data, expiry)
}

// Delete is DeleteCtx without a context.
func (s *SCSStore) Delete(token string) error { return s.DeleteCtx(context.Background(), token) }

// All is AllCtx without a context.
func (s *SCSStore) All() (map[string][]byte, error) { return s.AllCtx(context.Background()) }
