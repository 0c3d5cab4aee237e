package guard

// PublicationsDiffer is the reason of publications.
const PublicationsDiffer Reason = "publications_differ"

// publications refuses if the publications differ from what Lapse left, because deletes might not reach the auditor.
type publications struct{}

func (publications) Ask(q *Question) Answer {
	if !q.Facts.required || q.Facts.difference == "" {
		return Answer{}
	}
	return refuse(PublicationsDiffer, "the publications were changed: "+q.Facts.difference,
		"find out who changed it, then run `lapse init` and `lapse apply`: they fix it or say what to run")
}
