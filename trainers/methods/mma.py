"""MMA (Ding et al. 2020): each sample is attacked at its own margin, which AN-PGD estimates and remembers."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from trainers import losses
from trainers.method import Method, hyperparameter


@dataclass(frozen=True)
class MMA(Method):
    mode = "eval"  # for PGD; the bisection uses train mode, as in the official code
    passes = 3.0
    fixed_shapes = False  # only the correct images of a batch are attacked

    d_max: float = hyperparameter(0.1255, low=0.0, high=1.0)  # a sample with a larger margin adds no loss
    min_radius: float = hyperparameter(0.005, low=0.0, high=1.0)  # start of a new or misclassified sample
    max_radius_factor: float = hyperparameter(1.05, low=1.0, high=10.0)  # of d_max
    search_steps: int = hyperparameter(10, low=0)
    step_scale: float = hyperparameter(2.5, low=0.0)  # PGD's step size is this times radius / steps
    clean_coefficient: float = hyperparameter(1 / 3, low=0.0, high=1.0)

    def new_state(self, samples):
        return {"radii": torch.zeros(samples)}

    def batch_loss(self, model, batch, attack):
        images, labels = batch.images, batch.labels
        clean_logits = model(images)
        mixed, counts = attack.once(lambda: self._find_boundary(model, batch, attack, clean_logits.detach()))
        boundary = counts * losses.cross_entropy(model(mixed), labels)
        clean = F.cross_entropy(clean_logits, labels)
        return self.clean_coefficient * clean + (1 - self.clean_coefficient) * boundary.mean()

    def _find_boundary(self, model, batch, attack, clean_logits):
        """Return the images, each correct one moved to its boundary, and whether each counts in the loss."""
        # Correct means p_y > 1/2, not that the logit is the largest.
        correct = losses.soft_logit_margin(clean_logits, batch.labels) < 0
        mixed = batch.images.clone()
        radii = torch.zeros(len(mixed), dtype=mixed.dtype, device=mixed.device)
        where = torch.nonzero(correct).flatten()  # indices once: a mask would make the host wait at each use
        if len(where):
            before = self._recall(batch)[where].to(mixed)
            mixed[where], radii[where] = self._bisect(model, batch.images[where], batch.labels[where], attack, before)
        self._remember(batch, radii)
        return mixed, ~correct | (radii < self.d_max)

    def _bisect(self, model, images, labels, attack, radii):
        """Return the points on the boundary, between the image and its adversarial version, and their radii."""

        def margins(logits):
            return losses.soft_logit_margin(logits, labels)

        adversarial = attack(
            model, images, margins, epsilon=radii, step_size=self.step_scale * radii / max(attack.steps, 1)
        )
        per_image = (-1, *[1] * (images.dim() - 1))
        unit = (adversarial - images) / (radii.view(per_image) + 1e-12)
        low, high = torch.zeros_like(radii), torch.full_like(radii, self.max_radius_factor * self.d_max)
        with torch.no_grad():
            probe = adversarial
            for _ in range(self.search_steps):
                inside = margins(model(probe)) < 0
                low = torch.where(inside, torch.maximum(low, radii), low)
                high = torch.where(inside, high, torch.minimum(high, radii))
                radii = (low + high) / 2
                probe = (images + radii.view(per_image) * unit).clamp(0.0, 1.0)
            model(probe)  # the official loop forwards once more, which updates BatchNorm's buffers
        return images + radii.view(per_image) * unit, radii  # not clipped, as in the official code

    def _recall(self, batch):
        radii = batch.state["radii"][batch.indices.clamp(min=0)]
        return torch.where(batch.indices >= 0, radii, 0.0).clamp(min=self.min_radius)

    def _remember(self, batch, radii):
        stored = batch.state["radii"]
        real = torch.nonzero(batch.indices >= 0).flatten()  # synthetic images have no stored radius
        stored[batch.indices[real]] = radii[real].to(stored)
