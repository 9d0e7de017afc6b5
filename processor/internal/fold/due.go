package fold

// Reap returns the documents of the queue that are due at an instant and can be reaped beside this decision: not those
// that its messages name, and not those that are being reaped. held reports that there are others, for which readers
// are not known to have reached the deadline: the owner has to commit the log time first. A step removes no more
// entries of property indexes than entriesAtOnce, but for one document.
func (d *Decision) Reap(queue *DueQueue, now, reached int64) (due []*DueDocument, held bool) {
	removed := 0
	for _, doc := range queue.Due(now) {
		switch {
		case doc.reaped || d.docs[doc.Key] != nil:
		case doc.Expiry.At > reached:
			held = true
		case removed >= entriesAtOnce:
			return due, held
		default:
			due = append(due, doc)
			if config := d.catalog.Config(doc.Key.Collection); len(config.Indexes) > 0 {
				removed += count(doc.values(config))
			}
		}
	}
	return due, held
}

// ExpireDue adds the expiry event of a document that is due, unless it was published.
func (d *Decision) ExpireDue(doc *DueDocument) {
	doc.reaped = true
	if doc.Body == nil || doc.Published {
		d.Expired++
		return
	}
	at, seq, _ := d.catalog.Config(doc.Key.Collection).Cause(doc.Expiry)
	d.expire(doc.Key, &Version{Header: doc.Header, Body: doc.Body}, doc.Expiry, Output{At: at, Seq: seq})
}
