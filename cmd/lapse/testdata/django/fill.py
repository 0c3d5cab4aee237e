"""Fills the tables through Django's own models: of each as many old rows as young ones, the old ones first.

Usage: fill.py ROWS ROUND, the sessions' keys being ROUND-0, ROUND-1 and so on. Rounds after the first are of sessions alone."""

import sys
from datetime import timedelta

import django

django.setup()

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.utils import timezone
from django_celery_results.models import TaskResult

rows, part, now = int(sys.argv[1]), int(sys.argv[2]), timezone.now()
past, future = now - timedelta(days=100), now + timedelta(days=1)
Session.objects.bulk_create(
    Session(session_key=f"{part}-{n}", session_data="{}", expire_date=when)
    for n, when in enumerate([past] * rows + [future] * rows)
)
if part > 1:
    sys.exit()
editor = User.objects.create(username="editor")
LogEntry.objects.bulk_create(
    LogEntry(user=editor, action_flag=CHANGE, object_repr="a page", action_time=when)
    for when in [past] * rows + [now] * rows
)
TaskResult.objects.bulk_create(TaskResult(task_id=f"task-{n}") for n in range(2 * rows))
oldest = TaskResult.objects.order_by("id").values("id")[:rows]
TaskResult.objects.filter(id__in=oldest).update(date_done=past)
