"""What Ray says by itself."""

import contextlib
import sys
import threading

from sweep.cluster.session import WithoutRaylet


def test_what_rays_listener_prints_stays_out_of_the_display(capsys):
    with contextlib.redirect_stdout(WithoutRaylet(sys.stdout)):
        for name in ("ray_listen_error_messages", "another"):
            thread = threading.Thread(target=print, args=(f"from {name}",), name=name)
            thread.start()
            thread.join()
        print("from the sweep")
    assert capsys.readouterr().out == "from another\nfrom the sweep\n"
